"""What the pump does about a client that loses a question."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest

from streams.agents.backlog import KafkaBacklog, answered
from streams.errors import BrokerError
from streams.settings import Settings


class Lost(KafkaBacklog):
    """Its admin client never answers."""

    def _committed(self, asker: Any) -> dict[int, int]:
        del asker
        return {}

    def _offsets(self, admin: Any, where: Any) -> dict[int, int]:
        del admin, where
        return {0: answered(Future[Any](), lost_s=0.01).offset}


def test_a_question_that_the_client_loses_is_an_outage_and_not_a_thread_that_hangs() -> None:
    with (
        closing(Lost(Settings(bootstrap="127.0.0.1:1"), 1)) as backlog,
        pytest.raises(BrokerError, match="the client gives no answer") as found,
    ):
        backlog.measure()
    assert found.value.retryable
