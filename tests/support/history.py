"""What a pipeline's log promises, checked over a whole log: one function a promise.

Each takes a driver whose run is over, and raises AssertionError naming what broke.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from streams.audit.queue_invariants import judge_queues
from streams.core.record import Position
from streams.testing import PipelineDriver, Seen
from topology import TOPOLOGY

ENVELOPES = "trigger.inbox.envelopes"
DISPATCHES = "trigger.dispatches"
LIFECYCLE = "triggers.lifecycle"
OUTBOX = "trigger.outbox"
DLQ = "trigger.dlq"
INVOCATIONS = "trigger.invocations"
OUTPUTS = (DISPATCHES, LIFECYCLE, OUTBOX, DLQ, INVOCATIONS, "trigger.attempts", "triggers.registry")


def cause_of(seen: Seen) -> Position:
    """The record that an output was derived from."""
    return Position.parse(seen.headers["cause"].rpartition("/")[0])


def by_stage(driver: PipelineDriver, topic: str, *kinds: str) -> list[Seen]:
    """The records of a topic that a stage wrote."""
    return [seen for seen in driver.records(topic, *kinds) if "fold" in seen.headers]


def every_event_has_one_terminal_outcome(driver: PipelineDriver) -> None:
    """Dropped, unmatched, quarantined, or one end per binding that it was matched with."""
    answers: dict[Position, Counter[str]] = defaultdict(Counter)
    for seen in driver.records(DLQ, "record_quarantined"):
        value = seen.value
        position = Position(value["topic"], value["partition"], value["offset"])
        answers[position][seen.kind] += 1
    for topic, kinds in (
        (LIFECYCLE, ("EventDeduplicated", "EventUnmatched")),
        (DISPATCHES, ("event_matched",)),
    ):
        for seen in driver.records(topic, *kinds):
            answers[cause_of(seen)][seen.kind] += 1
    for envelope in driver.records(ENVELOPES, "event_ingested"):
        answer = answers[envelope.position]
        assert len(answer) == 1, (envelope.position, answer)
        assert answer["event_matched"] or answer.total() == 1, (envelope.position, answer)
    matched = [seen.value["dispatch_id"] for seen in driver.records(DISPATCHES, "event_matched")]
    ends = Counter(
        seen.value["dispatch_id"]
        for topic, kind in ((OUTBOX, "dispatch_succeeded"), (DLQ, "dlq_moved"))
        for seen in driver.records(topic, kind)
    )
    assert len(set(matched)) == len(matched)
    assert ends == dict.fromkeys(matched, 1)


def a_delivery_is_matched_once(driver: PipelineDriver) -> None:
    """Of all envelopes with one delivery key, exactly one was not a repeat."""
    dropped = {cause_of(seen) for seen in driver.records(LIFECYCLE, "EventDeduplicated")}
    taken = Counter(
        envelope.key
        for envelope in driver.records(ENVELOPES, "event_ingested")
        if envelope.position not in dropped
    )
    assert set(taken.values()) <= {1}, taken.most_common(3)


def nothing_is_left(driver: PipelineDriver) -> None:
    """No row of a dispatch outlives its end, and nothing was quarantined."""
    for rows in driver.rows("dispatch"):
        assert [key for key in rows if key.startswith(("d:", "e:"))] == []
    assert driver.records(DLQ, "record_quarantined") == []


def attempts_are_numbered_without_gap(driver: PipelineDriver) -> None:
    """Started, recorded and announced attempts of a dispatch are 1, 2, 3 …"""
    for topic, kind in (
        (OUTBOX, "dispatch_started"),
        (LIFECYCLE, "DispatchStarted"),
        ("trigger.attempts", "attempt_recorded"),
    ):
        numbers: dict[str, list[int]] = defaultdict(list)
        for seen in driver.records(topic, kind):
            numbers[seen.value["dispatch_id"]].append(seen.value["attempt"])
        for dispatch_id, found in numbers.items():
            assert found == list(range(1, len(found) + 1)), (kind, dispatch_id, found)


def fences_only_grow(driver: PipelineDriver) -> None:
    """Each intent of a dispatch has a fence of its own, above those before."""
    fences: dict[str, list[int]] = defaultdict(list)
    for seen in driver.records(INVOCATIONS):
        fences[seen.value["dispatch_id"]].append(seen.value["fence"])
    for dispatch_id, found in fences.items():
        assert found == sorted(set(found)), (dispatch_id, found)


def one_outcome_counts_for_each_attempt(driver: PipelineDriver) -> None:
    """A word that counted came under the newest fence; every other one was refused."""
    newest: dict[str, int] = {}
    issued: dict[Position, list[tuple[str, int]]] = defaultdict(list)
    for seen in driver.records(INVOCATIONS):
        issued[cause_of(seen)].append((seen.value["dispatch_id"], seen.value["fence"]))
    recorded = {cause_of(seen) for seen in driver.records("trigger.attempts", "attempt_recorded")}
    refused = {cause_of(seen) for seen in driver.records(LIFECYCLE, "OutcomeRefused")}
    given_back = {cause_of(seen) for seen in driver.records(LIFECYCLE, "InvocationReissued")}
    for word in sorted(driver.records(DISPATCHES), key=lambda seen: seen.position):
        if word.kind == "invocation_completed":
            counts = word.position in recorded | given_back
            assert counts != (word.position in refused), word.position
            if counts:
                assert word.value["fence"] == newest[word.value["dispatch_id"]], word.position
        newest.update(issued[word.position])


def times(driver: PipelineDriver) -> Callable[[Seen], int]:
    """Stream time of an output: when the record that it was derived from was appended."""
    stamps = {
        seen.position: seen.timestamp_ms
        for topic in (ENVELOPES, DISPATCHES, "triggers.registry")
        for seen in driver.records(topic)
    }
    return lambda seen: stamps[cause_of(seen)]


def no_retry_starts_early(driver: PipelineDriver) -> None:
    """The next attempt starts when it was said to, or later."""
    time_of = times(driver)
    planned: dict[tuple[str, int], int] = {}
    for seen in driver.records(LIFECYCLE, "RetryScheduled", "DispatchStarted"):
        key = seen.value["dispatch_id"], seen.value["attempt"]
        if seen.kind == "RetryScheduled":
            planned[key] = time_of(seen) + seen.value["delay_ms"]
        elif key[1] > 1:
            assert time_of(seen) >= planned[key], key


def no_lease_is_lost_before_its_end(driver: PipelineDriver, lease_ms: int) -> None:
    """An invoker is lost when it was silent for a whole lease, and so leases never overlap."""
    time_of = times(driver)
    refused = Counter(
        (cause_of(seen), seen.value["dispatch_id"])
        for seen in driver.records(LIFECYCLE, "OutcomeRefused")
    )
    renewed: dict[tuple[str, int], int] = {}
    for word in driver.records(DISPATCHES, "invocations_running"):
        for each in word.value["running"]:
            if not refused[word.position, each["dispatch_id"]]:
                key = each["dispatch_id"], each["fence"]
                renewed[key] = max(renewed.get(key, 0), word.timestamp_ms)
    for seen in driver.records(LIFECYCLE, "InvocationLost"):
        key = seen.value["dispatch_id"], seen.value["fence"]
        assert time_of(seen) >= renewed[key] + lease_ms, key


def nothing_is_written_twice(driver: PipelineDriver) -> None:
    """No two records of a topic have the same cause and fold."""
    for topic in OUTPUTS:
        causes = Counter(
            (seen.headers["cause"], seen.headers["fold"]) for seen in by_stage(driver, topic)
        )
        assert set(causes.values()) <= {1}, (topic, causes.most_common(1))


def a_binding_ends_after_everything_of_it(driver: PipelineDriver) -> None:
    """Once it is terminated nothing is matched with it or runs under it, unless it came back."""
    ended: set[str] = set()
    live: dict[str, set[str]] = defaultdict(set)
    for seen in driver.history(LIFECYCLE, DISPATCHES, OUTBOX, DLQ):
        value = seen.value
        match seen.kind:
            case "state_transition":
                key = value["binding_key"]
                if value["to_state"] == "terminated":
                    assert live[key] == set(), key
                    ended.add(key)
                elif value["to_state"] == "active":
                    ended.discard(key)
            case "event_matched":
                assert value["binding_key"] not in ended, value["dispatch_id"]
                live[value["binding_key"]].add(value["dispatch_id"])
            case "dispatch_succeeded" | "dlq_moved":
                live[value["binding_key"]].discard(value["dispatch_id"])
            case _:
                pass


def the_queues_hold(driver: PipelineDriver) -> None:
    """No job is lost, leases never overlap, gates and shares are kept: of every queue."""
    verdicts = judge_queues(driver.kafka, driver.codec, TOPOLOGY.stage("scheduler"))
    assert verdicts, "there is a queue"
    assert [each.violations for each in verdicts] == [[]] * len(verdicts)


def the_audit_is_clean(driver: PipelineDriver) -> None:
    """Everything recomputed from the log alone is what was written, byte for byte."""
    report = driver.audit()
    assert [(each.stage, each.partition, each.divergence) for each in report.verdicts] == [
        (each.stage, each.partition, None) for each in report.verdicts
    ]
    assert {each.word for each in report.verdicts} == {"verified"}
    assert report.strays_count == 0
