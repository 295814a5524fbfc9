"""Which dispatches `harn trigger cancel` finds, and what it says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streams.cli.main import main
from streams.cli.operation import Chooser, condition
from streams.cli.trigger_cancel import SEEN, items_chosen, items_of_event
from streams.codec import Codec
from streams.errors import ConfigError
from streams.testing import PipelineDriver, event
from tests.support.triggers import bindings_of

MANIFEST = """
[[triggers]]
id = "later"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "fails"
retry = { max = 3, backoff = "svix" }

[[triggers]]
id = "now"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "works"
"""


def fails(_event: object) -> None:
    message = "not yet"
    raise RuntimeError(message)


@pytest.fixture
def driver() -> PipelineDriver:
    driver = PipelineDriver(handlers={"fails": fails, "works": lambda _event: 1})
    driver.apply(bindings_of(MANIFEST))
    for number in range(4):
        driver.emit(event(f"e{number}", payload={"n": number}))
    driver.run_until_idle()
    return driver


def cancel(driver: PipelineDriver, items: list[Any]) -> None:
    for item in items:
        if item.request is not None:
            request = item.request("trigger_audit_1")
            driver.append(request.topic, request.kind, request.value, key=request.key)
    driver.run_until_idle()


def test_of_an_event_those_that_live_can_be_cancelled_and_those_that_ended_are_named(
    driver: PipelineDriver,
) -> None:
    found = {
        item.fields["binding_key"]: (item.fields["latest_status"], item.request is not None)
        for item in items_of_event(driver.kafka, Codec(), "e1", None)
    }
    assert found == {
        "later@v1": ("waiting", True),
        "now@v1": ("dispatch_succeeded", False),
    }


def test_one_binding_can_be_named_even_before_its_dispatch_comes(driver: PipelineDriver) -> None:
    [item] = items_of_event(driver.kafka, Codec(), "e9", "later@v1")
    assert item.fields["latest_status"] == "not_come"
    cancel(driver, [item])
    driver.emit(event("e9"))
    driver.run_until_idle()
    [ended] = driver.records("trigger.outbox", "dispatch_cancelled")
    assert (ended.value["event_id"], ended.value["attempt"]) == ("e9", 0)
    assert list(items_of_event(driver.kafka, Codec(), "e8", None)) == []


def test_a_condition_chooses_among_those_that_live(driver: PipelineDriver) -> None:
    where = condition("event.payload.n >= 2 && dispatch.trigger_id == 'later'", SEEN)
    items = list(items_chosen(driver.kafka, Codec(), Chooser(where)))
    assert {item.fields["event_id"] for item in items} == {"e2", "e3"}
    assert items[0].target == f"later@v1 {items[0].fields['event_id']}"
    cancel(driver, items)
    ended = driver.records("trigger.outbox", "dispatch_cancelled")
    assert {seen.value["event_id"] for seen in ended} == {"e2", "e3"}
    left = items_chosen(driver.kafka, Codec(), Chooser(None))
    assert {item.fields["event_id"] for item in left} == {"e0", "e1"}


def test_events_are_found_wherever_they_are_kept(driver: PipelineDriver) -> None:
    driver.emit(event("e9", payload={"n": 9, "text": "x" * 5_000}))
    driver.run_until_idle()
    where = condition("event.payload.n >= 3 && dispatch.event == null", SEEN)
    items = items_chosen(driver.kafka, Codec(), Chooser(where))
    assert {item.fields["event_id"] for item in items} == {"e3", "e9"}


def test_what_a_condition_cannot_be_asked_of_does_not_hold_and_is_told(
    driver: PipelineDriver, capsys: pytest.CaptureFixture[str]
) -> None:
    chooser = Chooser(condition("event.payload.n + 1", SEEN))
    assert list(items_chosen(driver.kafka, Codec(), chooser)) == []
    chooser.report()
    assert "could not be evaluated 4 times: expected true or false" in capsys.readouterr().err
    missing = Chooser(condition("event.payload.nothing.deeper == 1", SEEN))
    assert list(items_chosen(driver.kafka, Codec(), missing)) == []
    missing.report()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("event.", "--where is no CEL condition"),
        ("", "is empty"),
        ("x" * 2_000, "2000 characters"),
        ("a.all(x, x.all(y, y)) && b.all(z, z)", "more than one of all"),
        ("nosuch(event.id) == 1", "there is no function 'nosuch'"),
        ("state == 'waiting'", "'state' is not known: an expression sees `event` and `dispatch`"),
        ("status == 'waiting'", "as in dispatch.status"),
        ("event.tenant == 'acme'", "an event has no 'tenant'; did you mean event.tenant_id?"),
        (
            "dispatch.xyz == 1",
            "a dispatch has no 'xyz'; known are accepted_at_ms, arrival, attempt",
        ),
    ],
)
def test_what_is_no_condition_is_refused(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        condition(text, SEEN)


@pytest.mark.parametrize(
    "command",
    [
        ("cancel",),
        ("replay",),
        ("dlq", "list"),
        ("dlq", "replay"),
        ("dlq", "discard"),
    ],
)
def test_a_condition_that_nothing_has_the_names_of_ends_as_other_bad_options_do(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(("trigger", *command, "--where", "tenant == 'acme'"))
    assert stopped.value.code == 2
    assert list(tmp_path.iterdir()) == [], "no broker is started for it"
    assert "--where is no CEL condition: 'tenant' is not known" in capsys.readouterr().err
