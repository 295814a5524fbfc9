import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from streams.codec import Codec
from streams.edge.operator import AUDIT, Rate, Request, new_audit_id, operate
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.errors import BrokerError
from streams.settings import Settings
from tests.support.mock_cluster import mock_cluster, read

CODEC = Codec()
REQUESTS = "trigger.cancel.requests"


@pytest.fixture
def settings() -> Iterator[Settings]:
    with mock_cluster() as bootstrap:
        yield Settings(bootstrap=bootstrap, partitions=4)


def audit() -> dict[str, Any]:
    return {
        "audit_id": new_audit_id(),
        "operation": "cancel",
        "dry_run": False,
        "filter": None,
        "requested_at": "2026-01-01T00:00:00.000Z",
        "requested_by": "ada",
        "matched_count": 3,
        "requested_count": 3,
        "skipped_count": 0,
        "rate_limit": None,
        "targets": [],
        "accepted_from": None,
        "accepted_before": None,
        "only_for": None,
    }


def request(number: int) -> Request:
    value = {
        "binding_key": "triage@v1",
        "event_id": f"e{number}",
        "requested_at": "2026-01-01T00:00:00.000Z",
        "requested_by": "ada",
        "audit_id": None,
    }
    return Request(REQUESTS, "dispatch_cancel_requested", "k", value, 2, (("tenant_id", "acme"),))


@pytest.mark.parametrize("rate", [None, Rate(1_000, 1)])
async def test_the_audit_record_comes_first_and_then_every_request(
    settings: Settings, rate: Rate | None
) -> None:
    asked = audit()
    found: list[ReadRecord] = []

    def requests() -> Iterator[Request]:
        with TopicReader(settings, AUDIT) as reader:  # the broker has it by now
            reader.start_at(dict.fromkeys(range(reader.partitions), 0))
            while not reader.at_end:
                found.extend(reader.read(1))
        yield from (request(number) for number in range(3))

    assert await operate(settings, CODEC, asked, requests(), rate) == 3
    records = await asyncio.to_thread(read, settings, REQUESTS, 2, 3)
    values = [CODEC.decode(record.value() or b"")[1] for record in records]  # type: ignore[arg-type]
    assert [value["event_id"] for value in values] == ["e0", "e1", "e2"]
    assert ("tenant_id", b"acme") in (records[0].headers() or [])
    [audited] = found
    assert CODEC.decode(audited.value or b"")[1] == asked


async def test_a_request_that_the_broker_refuses_says_how_many_it_took(settings: Settings) -> None:
    too_large = request(1)._replace(headers=(("x", "x" * 2_000_000),))
    requests = [request(0), too_large]
    with pytest.raises(BrokerError, match=r"1 requests were taken, then: .*TOO_LARGE") as raised:
        await operate(settings, CODEC, audit(), requests, remedy="go on")
    assert raised.value.remedy == "go on"


@pytest.mark.parametrize(
    ("text", "rate", "interval_s"),
    [("10/s", Rate(10, 1), 0.1), (" 30/m ", Rate(30, 60), 2.0), ("1/s", Rate(1, 1), 1.0)],
)
def test_rates(text: str, rate: Rate, interval_s: float) -> None:
    assert Rate.parse(text) == rate
    assert rate.interval_s == interval_s
    assert str(rate) == text.strip()


@pytest.mark.parametrize("text", ["", "10", "0/s", "10/h", "-1/s", "1.5/s", "1234567/s"])
def test_what_is_no_rate_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="expected requests a second or a minute"):
        Rate.parse(text)
