import asyncio
from pathlib import Path
from typing import Any

import pytest

from streams.core.record import Position
from streams.engine import FoldFailed
from streams.errors import ManifestError
from streams.handler_api import Retryable, Terminal
from streams.testing import (
    Chaos,
    PipelineDriver,
    Refused,
    binding,
    event,
    policy,
    retry_policy,
)

IMMEDIATE = retry_policy("immediate", max_attempts=3)


def driver(handler: Any = lambda _event: None, **options: Any) -> PipelineDriver:
    retry = options.pop("retry", IMMEDIATE)
    made = PipelineDriver(handlers={"on_event": handler}, **options)
    made.apply([binding("triage", retry=retry)])
    return made


def kinds(made: PipelineDriver, topic: str) -> list[str]:
    return [seen.kind for seen in made.records(topic)]


# ---------------------------------------------------------------------- a user's tests
def test_an_attempt_that_takes_longer_than_its_timeout_has_timed_out() -> None:
    bound = binding("triage", retry=retry_policy("immediate", max_attempts=2))
    bound["definition"] = bound["definition"][:-1] + ',"timeout_ms":1500}'
    made = PipelineDriver(
        handlers={"on_event": lambda _event: "done"},
        duration_ms=lambda context: 1_501 if context.attempt == 1 else 1_500,
    )
    made.apply([bound])
    made.emit(event("e1"))
    made.finish()
    first, second = (each.value for each in made.records("trigger.attempts", "attempt_recorded"))
    assert (first["outcome"], second["outcome"]) == ("timeout", "success")
    assert first["error_msg"] == "ran for longer than its timeout of 1500 ms"


def test_an_event_runs_through_its_handler_to_the_outbox() -> None:
    made = driver(lambda event: {"was": event.payload["n"]})
    made.emit(event("e1", payload={"n": 7}, tenant_id="acme"))
    made.run_until_idle()
    started, done = made.records("trigger.outbox")
    assert (started.kind, done.kind) == ("dispatch_started", "dispatch_succeeded")
    assert (done.key, done.value["result"]) == ("e1", '{"was":7}')
    assert done.headers["tenant_id"] == "acme"
    assert Position.parse(done.headers["cause"].rpartition("/")[0]).topic == "trigger.dispatches"


def test_an_async_handler_runs_outside_and_inside_an_event_loop() -> None:
    async def handler(_event: Any) -> str:
        await asyncio.sleep(0)
        return "done"

    def run() -> str:
        made = driver(handler)
        made.emit(event("e1"))
        made.run_until_idle()
        [done] = made.records("trigger.outbox", "dispatch_succeeded")
        return done.value["result"]

    async def inside() -> str:
        return run()

    assert run() == asyncio.run(inside()) == '"done"'


def test_a_retry_waits_by_the_virtual_clock() -> None:
    def handler(_event: Any, context: Any) -> None:
        if context.attempt < 3:
            raise RuntimeError("not yet")

    made = driver(handler, retry=retry_policy("svix"))
    started_ms = made.clock.now_ms
    made.emit(event("e1"))
    made.advance(4_999)
    assert [run.context.attempt for run in made.runs] == [1]
    made.advance(1)
    assert [run.context.attempt for run in made.runs] == [1, 2]
    made.finish()
    assert [run.started_ms - started_ms for run in made.runs] == [0, 5_000, 305_000]


@pytest.mark.parametrize(
    ("error", "attempts", "reason"),
    [
        (Terminal("never"), 1, "terminal"),
        (RuntimeError("boom"), 3, "retry_exhausted"),
        (SystemExit(1), 3, "retry_exhausted"),
    ],
)
def test_what_a_handler_raises_decides_its_end(
    error: BaseException, attempts: int, reason: str
) -> None:
    def handler(_event: Any) -> None:
        raise error

    made = driver(handler)
    made.emit(event("e1"))
    made.finish()
    [entry] = made.records("trigger.dlq", "dlq_moved")
    assert (entry.value["attempt_count"], entry.value["reason"]) == (attempts, reason)


def test_a_handler_can_ask_for_time() -> None:
    def handler(_event: Any, context: Any) -> None:
        if context.attempt == 1:
            raise Retryable("later", after_ms=60_000)

    made = driver(handler)
    made.emit(event("e1"))
    made.finish()
    assert made.runs[1].started_ms - made.runs[0].started_ms == 60_000


def test_a_handler_that_nobody_has_is_asked_for_again_until_somebody_has_it() -> None:
    made = PipelineDriver(handlers={})
    made.apply([binding("triage")])
    made.emit(event("e1"))
    made.advance(2_999)
    assert kinds(made, "triggers.lifecycle").count("InvocationReissued") == 2
    made.finish()
    [entry] = made.records("trigger.dlq", "dlq_moved")
    assert entry.value["reason"] == "unresolved"


def test_a_manifest_that_is_not_taken_says_why() -> None:
    made = driver()
    with pytest.raises(Refused, match="conflict: revision 1 is in force"):
        made.apply([binding("other")], expected_revision=0)
    with pytest.raises(Refused, match="invalid: a trigger id is blank"):
        made.apply([binding("")])
    assert made.apply([binding("triage", retry=IMMEDIATE)]) == 1
    assert made.apply([binding("other")]) == 2


def test_a_manifest_and_its_handlers_are_loaded_from_disk(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text("def on_issue(event):\n    return event.kind\n")
    (tmp_path / "harn.toml").write_text(
        '[[triggers]]\nid = "t"\nkind = "webhook"\nprovider = "github"\n'
        'match = { events = ["issues.opened"] }\nhandler = "on_issue"\n'
    )
    made = PipelineDriver.from_manifest(tmp_path / "harn.toml", partitions=1)
    made.emit(event("e1", kind="issues.opened"))
    made.emit(event("e2", kind="push"))
    made.run_until_idle()
    [done] = made.records("trigger.outbox", "dispatch_succeeded")
    assert (done.key, done.value["result"]) == ("e1", '"issues.opened"')
    assert "EventUnmatched" in kinds(made, "triggers.lifecycle")
    (tmp_path / "harn.toml").write_text("[[triggers]]\n")
    with pytest.raises(ManifestError, match="id"):
        PipelineDriver.from_manifest(tmp_path / "harn.toml")


def test_a_record_of_any_kind_can_be_appended() -> None:
    made = driver()
    position = made.append(
        "trigger.dispatches", "tick", {"due_ms": 0}, partition=1, headers={"x": "y"}
    )
    assert str(position).startswith("trigger.dispatches/1/")
    with pytest.raises(KeyError):
        made.append("trigger.dispatches", "no_such_kind", {})
    made.run_until_idle()


# ---------------------------------------------------------------------- leases
LEASED = {"policy": policy(lease_ms=9_000), "retry": IMMEDIATE}


def test_a_long_handler_is_leased_and_renewed() -> None:
    made = driver(duration_ms=60_000, **LEASED)
    made.emit(event("e1"))
    made.finish()
    assert len(made.runs) == 1
    assert kinds(made, "trigger.dispatches").count("invocations_running") >= 60_000 // 9_000
    assert "InvocationLost" not in kinds(made, "triggers.lifecycle")


def test_a_lost_invoker_costs_a_lease_and_no_attempt() -> None:
    made = driver(duration_ms=60_000, invokers=2, **LEASED)
    made.emit(event("e1"))
    made.advance(20_000)
    [holder] = [each for each in made.members.invokers if each.next_due_ms() is not None]
    made.members.lose_invoker(holder)
    lost_ms = made.clock.now_ms
    made.finish()
    first, second = made.runs
    assert (first.context.attempt_id, first.fence) == (second.context.attempt_id, 1)
    assert second.fence == 2
    assert second.started_ms - lost_ms <= 9_000
    assert kinds(made, "trigger.outbox").count("dispatch_succeeded") == 1


def test_an_invoker_that_was_asleep_past_its_lease_is_refused() -> None:
    made = driver(duration_ms=5_000, invokers=2, **LEASED)
    made.emit(event("e1"))
    made.advance(2_000)
    [holder] = [each for each in made.members.invokers if each.next_due_ms() is not None]
    made.members.pause(holder)
    made.advance(20_000)
    made.members.wake_invoker(holder)
    made.finish()
    assert [run.fence for run in made.runs] == [1, 2]
    refused = made.records("triggers.lifecycle", "OutcomeRefused")
    words = {(each.value["fence"], each.value["invoker_id"]) for each in refused}
    assert words == {(1, holder.invoker_id)}
    assert refused[-1].value["outcome"] == "success"
    assert kinds(made, "trigger.outbox").count("dispatch_succeeded") == 1


def test_a_rebalance_runs_nothing_twice() -> None:
    made = driver(duration_ms=500, invokers=3, partitions=4, **LEASED)
    for number in range(40):
        made.emit(event(f"e{number}"))
        made.advance(20)
        made.members.rebalance()
    made.finish()
    assert len(made.runs) == 40
    assert kinds(made, "trigger.outbox").count("dispatch_succeeded") == 40


# ---------------------------------------------------------------------- halting
def gap(made: PipelineDriver) -> Position:
    """Append a revision after a missing one, as no broadcaster would, to one partition."""
    value = {
        "revision": 9,
        "namespace": "default",
        "added": [],
        "drained": [],
        "policy": policy(),
        "apply_id": "x",
    }
    return made.append("trigger.dispatches", "revision_published", value, partition=0)


def test_a_fold_that_raises_halts_its_partition_only() -> None:
    made = driver()
    halted_at = gap(made)
    for number in range(20):
        made.emit(event(f"e{number}"))
    with pytest.raises(FoldFailed, match="revision 9 follows 1: 2 is missing"):
        made.run_until_idle()
    assert set(made.members.halted()) == {halted_at}
    done = {seen.key for seen in made.records("trigger.outbox", "dispatch_succeeded")}
    assert 0 < len(done) < 20
    made.resume(halted_at)
    with pytest.raises(FoldFailed):
        made.run_until_idle()
    made.resume(halted_at, skip=True)
    made.finish()
    assert kinds(made, "trigger.outbox").count("dispatch_succeeded") == 20
    [skipped] = made.records("trigger.dlq", "record_quarantined")
    assert (skipped.value["code"], skipped.value["offset"]) == ("skipped", halted_at.offset)
    [journal] = [seen for seen in made.records("audit.journal") if seen.value["skipped"]]
    assert journal.value["skipped"] == [halted_at.offset]


def test_what_came_before_the_record_is_committed() -> None:
    made = driver()
    made.append("trigger.dispatches", "tick", {"due_ms": 0}, partition=0)
    halted_at = gap(made)
    with pytest.raises(FoldFailed):
        made.run_until_idle()
    owner = made.members.owner("dispatch", 0)
    assert owner.memory.position.next_offset == halted_at.offset


# ---------------------------------------------------------------------- chaos
def history(seed: int) -> list[Any]:
    made = driver(duration_ms=30, chaos=Chaos.storm(seed), policy=policy(lease_ms=2_000))
    for number in range(20):
        made.emit(event(f"e{number}"))
        made.step()
    made.finish()
    return [made.records(topic) for topic in ("trigger.dispatches", "audit.journal")]


def test_a_seed_decides_a_run() -> None:
    assert history(5) == history(5)
    assert history(5) != history(6)


def test_a_storm_is_one() -> None:
    made = driver(duration_ms=30, chaos=Chaos.storm(1), policy=policy(lease_ms=2_000))
    for number in range(300):
        made.emit(event(f"e{number}"))
    made.finish()
    assert made.members.crashed > 10
    assert made.members.fenced > 0
    assert "EventDeduplicated" in kinds(made, "triggers.lifecycle")
