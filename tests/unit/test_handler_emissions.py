"""What a handler may emit, and where it ends."""

from __future__ import annotations

from typing import Any

import pytest

from streams.core.emission import (
    DEDUPE_KEY_CHARS_MAX,
    DEPTH_HEADER,
    DEPTH_MAX,
    EMISSIONS_BYTES_MAX,
    EMISSIONS_MAX,
)
from streams.handler_api import Context
from streams.handler_emissions import Emissions
from streams.testing import event


def context(**fields: Any) -> Context:
    emissions = Emissions.of(event(**fields))
    ids = ("attempt_id", "dispatch_id", "trigger_id", "binding_key", "event_id")
    return Context(attempt=1, emissions=emissions, **dict.fromkeys(ids, "x"))


def test_a_bare_name_means_the_channel_of_the_events_tenant() -> None:
    of_tenant, of_nobody = context(tenant_id="acme"), context()
    of_tenant.emit("orders", [1])
    of_nobody.emit("orders")
    of_nobody.emit("orders", scope_id="other")
    [first] = of_tenant.emissions.taken()
    second, third = of_nobody.emissions.taken()
    assert (first["scope_id"], first["payload"]) == ("acme", "[1]")
    assert (second["scope_id"], second["payload"]) == ("default", "null")
    assert third["scope_id"] == "other"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"channel": "a:b"}, ValueError, "a channel's name is"),
        ({"channel": "a", "scope": "session"}, ValueError, "scope is 'session', which needs"),
        ({"channel": "a", "scope": "user", "scope_id": "1"}, ValueError, "a channel's scope is"),
        ({"channel": "a", "scope_id": "a b"}, ValueError, "a tenant's id is"),
        ({"channel": "a", "dedupe_key": ""}, ValueError, "dedupe_key: expected 1 to 500"),
        ({"channel": "a", "dedupe_key": "k" * (DEDUPE_KEY_CHARS_MAX + 1)}, ValueError, "dedupe_"),
        ({"channel": "a", "dedupe_key": "\ud800"}, ValueError, "printable characters"),
        ({"channel": "a", "payload": object()}, TypeError, "object"),
    ],
)
def test_what_cannot_be_emitted_is_refused_at_once(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    emits = context()
    with pytest.raises(error, match=message):
        emits.emit(**arguments)
    assert emits.emissions.taken() == ()


def test_a_run_emits_so_much_and_no_more() -> None:
    many = context()
    for _ in range(EMISSIONS_MAX):
        many.emit("a")
    with pytest.raises(ValueError, match="100 emissions are the most"):
        many.emit("a")
    large = context()
    large.emit("a", "x" * (EMISSIONS_BYTES_MAX - 3))
    with pytest.raises(ValueError, match="200000 bytes of payloads are the most"):
        large.emit("a", 10)
    large.emit("a", 1)


def test_a_trigger_that_feeds_itself_comes_to_an_end() -> None:
    context(headers={DEPTH_HEADER: str(DEPTH_MAX - 1)}).emit("a")
    with pytest.raises(RuntimeError, match="does a trigger feed itself"):
        context(headers={DEPTH_HEADER: str(DEPTH_MAX)}).emit("a")
