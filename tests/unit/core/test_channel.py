"""Channels: selectors in full, who takes what, and what handlers emit as events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streams.core.channel import channel_problem, event_kind, selector
from streams.core.emission import (
    DEDUPE_KEY_CHARS_MAX,
    DEPTH_HEADER,
    EMISSIONS_MAX,
    PARENT_HEADER,
    depth_of,
)
from streams.testing import envelope, event
from tests.support.dispatch_log import DispatchLog, completed
from tests.support.revisions import revision
from tests.support.stage_log import Out, StageLog, kinds
from tests.support.triggers import published


# ---------------------------------------------------------------------- selectors
@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("channel:orders", "channel:tenant:default:orders"),
        ("channel:tenant:acme:orders", "channel:tenant:acme:orders"),
        ("channel:tenant:*:orders", "channel:tenant:*:orders"),
        ("channel:session:chat.turns", "channel:session:chat.turns"),
        ("channel:pipeline:done", "channel:pipeline:done"),
    ],
)
def test_a_selector_in_full(text: str, full: str) -> None:
    assert selector(text) == full


@pytest.mark.parametrize(
    "text",
    [
        *("orders", "channel:", "channel:a b", "channel:tenant:orders", "channel:tenant:a:b:c"),
        *("channel:user:x:orders", "channel:session:", f"channel:{'x' * 101}", "channel:tenant::o"),
    ],
)
def test_what_is_no_selector_is_refused_with_what_one_is(text: str) -> None:
    with pytest.raises(ValueError, match="expected channel:<name>"):
        selector(text)


@pytest.mark.parametrize(
    ("channel", "problem"),
    [
        (("a" * 100, "tenant", "acme"), None),
        (("a" * 101, "tenant", "acme"), "a channel's name is"),
        (("", "tenant", "acme"), "a channel's name is"),
        (("a:b", "tenant", "acme"), "a channel's name is"),
        (("a", "user", "acme"), "a channel's scope is one of tenant, session, pipeline"),
        (("a", "tenant", "*"), "a tenant's id is"),
        (("a", "tenant", ""), "a tenant's id is"),
        (("a", "session", "s" * 200), None),
        (("a", "session", "s" * 201), "the id of a session is 1 to 200"),
        (("a", "pipeline", ""), "the id of a pipeline is 1 to 200"),
        (("a", "pipeline", "a\x00"), "the id of a pipeline is 1 to 200"),
    ],
)
def test_what_names_no_channel_is_said(channel: tuple[str, str, str], problem: str | None) -> None:
    found = channel_problem(*channel)
    assert (found is None) == (problem is None)
    assert problem is None or problem in (found or "")


# ---------------------------------------------------------------------- matching
def taking(*selectors: str) -> str:
    return f"""
    [[triggers]]
    id = "takes"
    kind = "channel.emit"
    provider = "channel"
    match = {{ events = {json.dumps(selectors)} }}
    handler = "f"
    """


def takes(selectors: tuple[str, ...], kind: str, tenant_id: str | None = None) -> bool:
    inbox = StageLog("inbox")
    inbox.add("revision_published", revision(1, added=published(taking(*selectors))))
    found = event(provider="channel", kind=kind, tenant_id=tenant_id)
    [out] = inbox.add("event_ingested", envelope(found))
    assert out.kind in {"event_matched", "EventUnmatched"}
    return out.kind == "event_matched"


@pytest.mark.parametrize(
    ("selectors", "kind", "taken"),
    [
        (("channel:o",), "channel:tenant:default:o", True),
        (("channel:o",), "channel:tenant:acme:o", False),
        (("channel:tenant:*:o",), "channel:tenant:acme:o", True),
        (("channel:tenant:*:o",), "channel:tenant:default:o", True),
        (("channel:tenant:*:o",), "channel:tenant:acme:p", False),
        (("channel:tenant:acme:o",), "channel:tenant:acme:o", True),
        (("channel:session:o",), "channel:session:o", True),
        (("channel:session:o",), "channel:pipeline:o", False),
        (("channel:tenant:*:o",), "channel:session:o", False),
        ((), "channel:session:o", True),
        (("channel:p", "channel:o"), "channel:tenant:default:o", True),
    ],
)
def test_who_takes_what_is_emitted(selectors: tuple[str, ...], kind: str, taken: bool) -> None:
    assert takes(selectors, kind) is taken


def test_a_bare_name_sent_by_hand_means_the_channel_of_its_tenant() -> None:
    assert takes(("channel:o",), "channel:o")
    assert takes(("channel:tenant:acme:o",), "channel:o", "acme")
    assert not takes(("channel:o",), "channel:o", "acme")


def test_a_trigger_with_channels_takes_no_event_of_another_provider() -> None:
    inbox = StageLog("inbox")
    inbox.add("revision_published", revision(1, added=published(taking())))
    [out] = inbox.add("event_ingested", envelope(event(kind="channel:o")))
    assert out.kind == "EventUnmatched"


# ---------------------------------------------------------------------- what handlers emit
def emission(channel: str = "orders", **changes: Any) -> dict[str, Any]:
    return {
        "channel": channel,
        "scope": "tenant",
        "scope_id": "default",
        "payload": '{"n":1}',
        "dedupe_key": None,
        **changes,
    }


def ended(log: DispatchLog, *emissions: dict[str, Any], outcome: Any = "success") -> list[Out]:
    return log.add("invocation_completed", {**completed(outcome), "emissions": list(emissions)})


def sent(outputs: list[Out]) -> list[Out]:
    return [out for out in outputs if out.topic == "trigger.inbox.envelopes"]


def test_what_a_successful_attempt_emitted_becomes_events_in_order() -> None:
    log = DispatchLog()
    found = event("e1", tenant_id="acme", headers={DEPTH_HEADER: "2"})
    log.match(found=found)
    first, second = sent(
        ended(log, emission(), emission("chat", scope="session", scope_id="s 1", payload="null"))
    )
    assert (first.kind, first.value["trigger_id"]) == ("event_ingested", None)
    one, two = first.value["event"], second.value["event"]
    assert (one["provider"], one["kind"]) == ("channel", "channel:tenant:default:orders")
    assert json.loads(one["provider_payload"]) == {
        "channel": "orders",
        "scope": "tenant",
        "scope_id": "default",
        "payload": {"n": 1},
    }
    assert two["kind"] == "channel:session:chat"
    assert json.loads(two["provider_payload"])["scope_id"] == "s 1"
    assert (one["tenant_id"], two["tenant_id"]) == ("default", "acme")
    assert one["trace_id"] == found["trace_id"]
    assert one["headers"] == {DEPTH_HEADER: "3", PARENT_HEADER: "d1"}
    assert (one["dedupe_key"], two["dedupe_key"]) == ("d1.0", "d1.1")
    assert first.key == "channel:d1.0"
    assert first.headers["tenant_id"] == "default"


def test_the_same_emission_of_another_run_has_the_same_id() -> None:
    ids: set[str] = set()
    for fence in (1, 2):
        log = DispatchLog()
        log.match()
        if fence == 2:
            log.complete("interrupted")
        word = completed(fence=fence)
        [out] = sent(log.add("invocation_completed", {**word, "emissions": [emission()]}))
        ids.add(out.value["event"]["id"])
    assert len(ids) == 1


def test_nothing_is_emitted_by_what_does_not_count() -> None:
    log = DispatchLog()
    log.match()
    assert sent(ended(log, emission(), outcome="failed")) == []
    late = log.add("invocation_completed", {**completed(fence=1), "emissions": [emission()]})
    assert kinds(late) == ["OutcomeRefused"]


def test_a_key_of_its_own_holds_for_its_channel() -> None:
    log = DispatchLog()
    log.match()
    outs = sent(ended(log, emission("a", dedupe_key="k"), emission("b", dedupe_key="k")))
    keys = [out.value["event"]["dedupe_key"] for out in outs]
    assert keys == ["channel:tenant:default:a/default:k", "channel:tenant:default:b/default:k"]


def test_emissions_are_bounded() -> None:
    log = DispatchLog()
    log.match()
    assert len(sent(ended(log, *[emission()] * EMISSIONS_MAX))) == EMISSIONS_MAX
    log.match("d2")
    word = {**completed(dispatch_id="d2"), "emissions": [emission()] * (EMISSIONS_MAX + 1)}
    [out] = log.add("invocation_completed", word)
    assert out.value["reason"] == "DSP-006: 101 emissions, expected at most 100"
    for bad, reason in (
        (emission("a b"), "an emission: a channel's name is"),
        (emission(dedupe_key="k" * (DEDUPE_KEY_CHARS_MAX + 1)), "an emission: dedupe_key has 501"),
    ):
        word = {**completed(dispatch_id="d2"), "emissions": [bad]}
        [out] = log.add("invocation_completed", word)
        assert f"DSP-006: {reason}" in out.value["reason"]
    assert log.row("d2") is not None


@pytest.mark.parametrize(
    ("text", "depth"), [("0", 0), ("7", 7), ("-1", 0), ("x", 0), ("99999", 0), ("٣", 0)]
)
def test_a_depth_that_is_none_is_none(text: str, depth: int) -> None:
    assert depth_of({DEPTH_HEADER: text}) == depth
    assert depth_of({}) == 0


def test_a_kind_names_its_channel() -> None:
    assert event_kind("tenant", "acme", "o") == "channel:tenant:acme:o"
    assert event_kind("session", "s1", "o") == "channel:session:o"
