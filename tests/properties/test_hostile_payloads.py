"""Whatever a sender puts into a payload, no fold raises: bad data is an output."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from streams.core.wire import TriggerEvent
from streams.testing import envelope, event
from tests.support.gate_log import gated
from tests.support.revisions import revision
from tests.support.stage_log import StageLog

ANY_TEXT = st.text(st.characters(), max_size=300)  # half surrogate pairs, too
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=20,
)
PAYLOADS = ANY_JSON.map(lambda value: json.dumps({"k": value})) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=100
)

FLOWS: list[dict[str, Any]] = [
    {"concurrency": {"key": "event.payload.k", "max": 1}},
    {"throttle": {"key": "event.payload", "period_ms": 1_000, "max": 1}},
    {"singleton": {"key": "string(event.payload.k)"}},
    {"rate_limit": {"key": "bytes(string(event.payload.k))", "period_ms": 1_000, "max": 1}},
    {"filter": "event.payload.k", "when": "cel:event.payload.k == 1"},
    {"batch": {"size": 2, "timeout_ms": 1_000}},
]


def nested(depth: int) -> str:
    return '{"k":' + "[" * depth + "]" * depth + "}"


@given(payload=PAYLOADS, flow=st.sampled_from(FLOWS))
@example(payload=nested(254), flow=FLOWS[0])
@example(payload=nested(300), flow=FLOWS[0])
@example(payload=nested(100_000), flow=FLOWS[2])
@example(payload=nested(100_000), flow=FLOWS[5])
@example(payload='{"k":' + "9" * 5_000 + "}", flow=FLOWS[0])
@example(payload='{"k":"\\ud800"}', flow=FLOWS[0])
@example(payload='{"k":"\\ud800"}', flow=FLOWS[5])
@example(payload=json.dumps({"k": "x" * 250_000}), flow=FLOWS[0])
@example(payload=json.dumps({"k": "x" * 250_000}), flow=FLOWS[1])
def test_no_payload_stops_a_partition(payload: str, flow: dict[str, Any]) -> None:
    inbox, dispatch = StageLog("inbox"), StageLog("dispatch")
    for log in (inbox, dispatch):
        log.add("revision_published", revision(1, added=[gated(flow)]))
    for number in range(3):
        found: TriggerEvent = {**event(f"e{number}"), "provider_payload": payload}
        for out in inbox.add("event_ingested", envelope(found)):
            assert out.kind in {"event_matched", "EventFiltered"}
            if out.kind == "event_matched":
                dispatch.add("event_matched", out.value)
    dispatch.now_ms += 10_000
    dispatch.add("tick", {"due_ms": 0})
