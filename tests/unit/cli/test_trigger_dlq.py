"""What `harn trigger dlq` finds, asks for and what comes of it, over the pipeline in memory."""

from __future__ import annotations

from typing import Any

import pytest

from streams.cli.operation import Item, condition
from streams.cli.trigger_dlq import SEEN, chosen_letters, discard_items, replay_items
from streams.codec import Codec
from streams.errors import ConfigError
from streams.testing import PipelineDriver, event
from tests.support.triggers import bindings_of

MANIFEST = """
[[triggers]]
id = "fragile"
kind = "webhook"
provider = "github"
match = { events = [] }
handler = "handle"
filter = "event.payload.n != `99`"
retry = { max = 1, backoff = "immediate" }
"""
CODEC = Codec()


class Plant:
    """A pipeline whose handler fails until it is repaired."""

    def __init__(self, events: int = 3) -> None:
        self.broken = True
        self.driver = PipelineDriver(handlers={"handle": self.handle}, partitions=3)
        self.driver.apply(bindings_of(MANIFEST))
        for number in range(events):
            found = event(f"e{number}", payload={"n": number}, tenant_id="acme")
            self.driver.emit(found, headers={"traceparent": f"00-{number}-1-01"})
        self.driver.run_until_idle()

    def handle(self, found: Any) -> int:
        if self.broken:
            message = "broken"
            raise RuntimeError(message)
        return found.payload["n"]

    def letters(self, *ids: str, where: str | None = None, bodies: bool = True) -> list[Any]:
        chosen = condition(where, SEEN)
        return chosen_letters(self.driver.kafka, CODEC, ids, chosen, bodies=bodies)

    def replay(self, *ids: str, where: str | None = None) -> list[Item]:
        items = replay_items(self.letters(*ids, where=where), CODEC, {"fragile"})
        self.send(items)
        return items

    def send(self, items: list[Item]) -> None:
        for item in items:
            if item.request is not None:
                asked = item.request("trigger_audit_1")
                headers = dict(asked.headers)
                self.driver.append(
                    asked.topic,
                    asked.kind,
                    asked.value,
                    key=asked.key,
                    partition=asked.partition,
                    headers=headers,
                )
        self.driver.run_until_idle()

    def changes(self) -> list[str]:
        return [seen.value["status"] for seen in self.driver.records("trigger.dlq", "dlq_entry")]


def test_every_undelivered_event_is_listed_by_event_id_with_its_body() -> None:
    letters = Plant().letters()
    assert [letter.entry["event_id"] for letter in letters] == ["e0", "e1", "e2"]
    first = letters[0]
    assert first.state == "pending"
    assert first.body.moved["event"]["id"] == "e0"
    assert first.body.traceparent == "00-0-1-01"
    assert [attempt["outcome"] for attempt in first.body.moved["attempts"]] == ["failed"]
    fields = first.fields()
    assert (fields["reason"], fields["error"]) == ("retry_exhausted", "RuntimeError: broken")


def test_a_replay_that_succeeds_takes_the_entry_off_the_list() -> None:
    plant = Plant()
    plant.broken = False
    [item] = plant.replay(where="event.payload.n == 1")
    fresh = item.fields["replay_event_id"]
    assert fresh.startswith("trigger_evt_")
    assert [letter.entry["event_id"] for letter in plant.letters()] == ["e0", "e2"]
    [done] = plant.driver.records("trigger.outbox", "dispatch_succeeded")
    assert (done.value["event_id"], done.value["replay_of_event_id"]) == (fresh, "e1")
    assert (done.headers["tenant_id"], done.headers["traceparent"]) == ("acme", "00-1-1-01")
    assert plant.changes() == ["replay_started", "replay_succeeded"]
    assert plant.driver.audit().word == "verified"


def test_a_replay_that_fails_again_keeps_the_entry_and_the_next_one_sends_the_same_event() -> None:
    plant = Plant(events=1)
    [before] = plant.letters()
    for replays in (1, 2):
        plant.replay(before.entry["entry_id"])
        [letter] = plant.letters()
        assert letter.entry["entry_id"] == before.entry["entry_id"]
        assert (letter.entry["replays"], letter.state) == (replays, "pending")
        assert letter.body.moved["event"]["id"] == "e0"
    statuses = [note["status"] for note in letter.entry["history"]]
    assert statuses == ["dlq", *["replay_started", "replay_dlq"] * 2]
    plant.broken = False
    plant.replay()
    assert plant.letters() == []
    chains = {
        seen.value["replay_of_event_id"]
        for seen in plant.driver.records("trigger.dispatches", "event_matched")
    }
    assert chains == {None, "e0"}


def test_what_cannot_be_replayed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    plant = Plant(events=1)
    letters = plant.letters()
    [item] = replay_items(letters, CODEC, set())
    assert (item.request, item.status) == (None, "no_such_trigger")
    [item] = replay_items(plant.letters(bodies=False), CODEC, {"fragile"})
    assert (item.request, item.status) == (None, "body_gone")
    monkeypatch.setattr("streams.edge.replays.MAX_INPUT_BYTES", 4_100)
    [item] = replay_items(letters, CODEC, {"fragile"})
    assert (item.request, item.status) == (None, "too_large")
    assert "at most 100 can be replayed" in item.fields["problem"]


def test_an_entry_whose_replay_is_on_its_way_is_left_alone() -> None:
    plant = Plant(events=1)
    plant.driver.members.invokers[0].paused = True
    plant.replay()
    [letter] = plant.letters()
    assert letter.state == "replaying"
    [item] = replay_items([letter], CODEC, {"fragile"})
    assert (item.request, item.status) == (None, "replaying_already")
    [item] = discard_items([letter])
    assert (item.request, item.status) == (None, "replaying")


def test_a_replay_that_a_filter_keeps_out_resolves_and_one_without_trigger_does_not() -> None:
    plant = Plant(events=1)
    [letter] = plant.letters()
    [item] = replay_items([letter], CODEC, {"fragile"})
    assert item.request is not None
    asked = item.request("a")
    gone = {**asked.value, "trigger_id": "gone"}
    plant.driver.append(asked.topic, asked.kind, gone, key=asked.key)
    plant.driver.run_until_idle()
    assert plant.changes() == ["replay_unmatched"]
    out = {**asked.value["event"], "id": "fresh", "provider_payload": '{"n":99}'}
    plant.driver.append(asked.topic, asked.kind, {**asked.value, "event": out}, key="fresh")
    plant.driver.run_until_idle()
    assert plant.changes() == ["replay_unmatched", "replay_skipped"]
    assert plant.letters() == []


def test_entries_are_discarded_and_the_record_says_who() -> None:
    plant = Plant()
    plant.send(discard_items(plant.letters(where="entry.replays == 0 && event.payload.n < 2")))
    assert [letter.entry["event_id"] for letter in plant.letters()] == ["e2"]
    [first, _] = plant.driver.records("trigger.dlq", "dlq_entry")
    assert (first.value["state"], first.value["audit_id"]) == ("discarded", "trigger_audit_1")
    assert plant.driver.audit().word == "verified"


def test_an_unknown_entry_is_named_with_one_like_it() -> None:
    plant = Plant(events=1)
    [letter] = plant.letters()
    wrong = letter.entry["entry_id"][:-1] + "x"
    with pytest.raises(ConfigError, match=r"is not pending.*did you mean") as caught:
        plant.letters(wrong, "dlq_0_nothing")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("entry.reasons == 'x'", "an entry has no 'reasons'; did you mean entry.reason?"),
        (
            "dispatch.status == 'x'",
            "'dispatch' is not known: an expression sees `event` and `entry`",
        ),
        ("entry.error.lower() == 'x'", "there is no function 'lower'"),
    ],
)
def test_names_that_no_dead_letter_has_are_refused(where: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Plant(0).letters(where=where)


def test_a_condition_may_name_all_that_a_dead_letter_has() -> None:
    [letter] = Plant(1).letters()
    document = letter.document()
    assert {name: {*document[name]} for name in SEEN} == {
        name: {*(properties or ())} for name, properties in SEEN.items()
    }
