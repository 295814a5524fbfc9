"""Whether the topics of turns have the partitions by which this program places sessions.

Source: DESIGN "Partitions".
"""

from __future__ import annotations

from confluent_kafka import KafkaException

from streams.core.turn.words import TURNS
from streams.errors import BrokerError, TopologyError
from streams.kafka import make_admin
from streams.settings import Settings
from topology.topics import TURN_RECORDS

__all__ = ["counts_of", "require_layout"]

_TIMEOUT_S = 10.0


def counts_of(settings: Settings) -> dict[str, int]:
    """Return the partitions of `agent_turns` and of topics that share them; 0 for a missing one.

    Raises: BrokerError.
    """
    try:
        found = make_admin(settings).list_topics(timeout=_TIMEOUT_S).topics
    except KafkaException as error:
        message = f"Kafka at {settings.bootstrap}: {error.args[0].str()}"
        raise BrokerError(message, retryable=True) from error
    return {
        name: len(found[name].partitions) if name in found else 0 for name in (TURNS, *TURN_RECORDS)
    }


def require_layout(settings: Settings) -> None:
    """Raise TopologyError when a topic is missing or was not grown as the settings say."""
    expected = settings.agent_turns_partitions
    problems = [
        f"topic {name} has {count} partitions, expected {expected}"
        if count
        else f"topic {name} is missing; run `harn topology apply`"
        for name, count in counts_of(settings).items()
        if count != expected
    ]
    if problems:
        raise TopologyError(
            problems,
            remedy="set AGENT_TURNS_PARTITIONS to what agent_turns has; to have more, see "
            "`harn topology grow-turns`",
        )
