"""What became of the turns of one test, and bodies and sessions for it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from streams.core.turn.partition_key import partition_of_session
from streams.core.turn.words import CLAIMS
from streams.edge.turns.body import Claimed, Ending
from streams.settings import Settings
from tests.support.kafka_turns import read_topic


def of_run(settings: Settings, topic: str, run: str) -> list[Any]:
    """The records of one test, by the session that they are about."""
    found = read_topic(settings, topic)
    return [each for each in found if str(each.value.get("session_id", "")).startswith(run)]


def words_about(settings: Settings, run: str) -> dict[str, list[tuple[str, str]]]:
    """Kinds and outcomes that the claims have of each job, in order."""
    said: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for each in of_run(settings, CLAIMS, run):
        said[each.value["job_id"]].append((each.kind, each.value.get("outcome", "")))
    return said


def waiting(release: asyncio.Event) -> Any:
    """A body whose first turns of sessions wait to be released, or give themselves back."""

    async def body(claimed: Claimed) -> Ending:
        if claimed.envelope.job_id.endswith("-first"):
            ways = [asyncio.ensure_future(each.wait()) for each in (release, claimed.cancelled)]
            _, others = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for each in others:
                each.cancel()
            if claimed.cancelled.is_set():
                raise asyncio.CancelledError
        return Ending("completed")

    return body


def sessions_everywhere(run: str, settings: Settings) -> dict[int, str]:
    """One session in each partition, by its number."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < settings.agent_turns_partitions:
        session = f"{run}-s{number}"
        found.setdefault(partition_of_session(session, settings.agent_turns_partitions), session)
        number += 1
    return found
