"""What a handler does wrong, wherever it runs: each has its outcome, and the invoker goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from streams.edge.invoker.observer import InvokerObserver
from streams.errors import InvokerStuck
from streams.handler_api import Context, Event, Handler
from streams.settings import Settings
from tests.support import odd_handlers
from tests.support.eventually import eventually
from tests.support.invoker_edge import Rig
from tests.support.odd_handlers import in_process
from tests.support.virtual_time import VirtualLoop, virtual_time

SETTINGS = Settings(
    max_record_bytes=10_000, http_max_body_bytes=3_000, drain_ms=0, invoker_processes=2
)

MakeRig = Callable[..., Any]


@pytest_asyncio.fixture
async def make_rig() -> AsyncIterator[MakeRig]:
    """Make invokers that are stopped when the test ends, however it ends."""
    rigs: list[Rig] = []

    async def make(settings: Settings = SETTINGS, **functions: Any) -> Rig:
        rigs.append(await Rig(settings, **functions).start())
        return rigs[-1]

    yield make
    for rig in rigs:
        await rig.invoker.stop()


def on_thread(name: str) -> Callable[..., Any]:
    return getattr(odd_handlers, name)


def on_loop(name: str) -> Callable[..., Any]:
    """The same behaviour in an async function."""
    function = getattr(odd_handlers, name)

    async def run(event: Event, context: Context) -> Any:
        await asyncio.sleep(0)
        return function(event, context)

    return run


PLACES = [on_loop, on_thread, in_process]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("name", "outcome", "error_class", "error"),
    [
        ("raise_error", "failed", "handler_error", "ValueError: boom"),
        ("raise_terminal", "failed", "terminal", "Terminal: gone"),
        ("raise_retryable", "failed", "handler_error", "Retryable: later"),
        ("raise_denied", "denied", "auth_failed", "Denied: no such token"),
        ("raise_unavailable", "failed", "provider_5xx", "Unavailable: 503"),
        ("raise_nonsense", "failed", "handler_error", "NonsenseError: later"),
        ("raise_exit", "failed", "handler_panic", "SystemExit: 3"),
        ("raise_interrupt", "failed", "handler_panic", "KeyboardInterrupt"),
        (
            "raise_odd",
            "failed",
            "handler_panic",
            "OddError: its message cannot be read (SystemExit)",
        ),
        ("raise_huge", "failed", "handler_error", "ValueError: " + "x" * 1_012),
        ("recurse", "failed", "handler_error", "RecursionError: maximum recursion depth"),
        ("return_object", "failed", "handler_error", "the result (object) cannot be written"),
        ("return_generator", "failed", "handler_error", "the result (list_iterator) cannot"),
        ("return_coroutine", "failed", "handler_error", "the result (coroutine) cannot"),
        ("return_itself", "failed", "handler_error", "the result (list) cannot be written"),
        ("return_much", "result_too_large", "result_too_large", "the result has 4002 bytes"),
    ],
)
async def test_bad_behaviour_has_one_outcome_and_the_next_handler_runs(
    make_rig: MakeRig,
    place: Callable[[str], Any],
    name: str,
    outcome: str,
    error_class: str,
    error: str,
) -> None:
    rig = await make_rig(odd=place(name), fine=place("answer"))
    odd = await rig.outcome(rig.intent("odd", "d1"))
    assert (odd["outcome"], odd["error_class"]) == (outcome, error_class)
    assert odd["error"].startswith(error)
    assert len(odd["error"]) <= 1_024
    fine = await rig.outcome(rig.intent("fine", "d2"))
    assert fine["result"] == '{"action":"opened","attempt":"d2.1"}'
    assert not rig.invoker.failed.done()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ["raise_retryable", "raise_unavailable"])
async def test_a_retryable_asks_for_its_delay_wherever_it_is_raised(
    make_rig: MakeRig, place: Callable[[str], Any], name: str
) -> None:
    rig = await make_rig(odd=place(name))
    assert (await rig.outcome(rig.intent("odd")))["retry_after_ms"] == 7


@pytest.mark.parametrize("place", PLACES)
async def test_what_was_spent_is_reported_with_success_and_failure(
    make_rig: MakeRig, place: Callable[[str], Any]
) -> None:
    rig = await make_rig(spend=place("spend"), fail=place("spend_and_fail"), no=place("nothing"))
    spent = await rig.outcome(rig.intent("spend", "d1"))
    assert spent["usage"] == {"cost_usd_micros": 250_001, "tokens": 100}
    failed = await rig.outcome(rig.intent("fail", "d2"))
    assert (failed["outcome"], failed["usage"]["tokens"]) == ("failed", 7)
    assert (await rig.outcome(rig.intent("no", "d3")))["usage"] is None


@pytest.mark.parametrize("place", PLACES)
async def test_what_was_emitted_travels_in_the_outcome_of_a_success(
    make_rig: MakeRig, place: Callable[[str], Any]
) -> None:
    rig = await make_rig(emits=place("emit_two"), fails=place("emit_and_fail"))
    done = await rig.outcome(rig.intent("emits", "d1"))
    first, second = done["emissions"]
    assert (first["channel"], first["scope"], first["scope_id"]) == ("orders", "tenant", "default")
    assert first["payload"].startswith('{"of":"')
    assert second == {
        "channel": "chat",
        "scope": "session",
        "scope_id": "s1",
        "payload": "null",
        "dedupe_key": "k",
    }
    failed = await rig.outcome(rig.intent("fails", "d2"))
    assert (failed["outcome"], failed["emissions"]) == ("failed", [])
    # A predicate has nothing to say but yes or no.
    asked = await rig.outcome(rig.intent("emits", "d3", attempt=0, purpose="predicate"))
    assert "RuntimeError: a predicate decides, and emits nothing" in asked["error"]


# ---------------------------------------------------------------------- predicates
@pytest.mark.parametrize("place", [on_loop, on_thread])
@pytest.mark.parametrize(
    ("name", "outcome", "result", "error"),
    [
        ("yes", "success", "true", None),
        ("number", "failed", None, "the predicate answered int, expected True or False"),
        ("nothing", "failed", None, "the predicate answered NoneType, expected True or False"),
        ("return_coroutine", "failed", None, "the predicate answered coroutine, expected True"),
        ("raise_error", "failed", None, "ValueError: boom"),
        ("raise_terminal", "failed", None, "Terminal: gone"),
        ("raise_denied", "failed", None, "Denied: no such token"),
    ],
)
async def test_a_predicate_answers_a_bool_or_fails(
    make_rig: MakeRig,
    place: Callable[[str], Any],
    name: str,
    outcome: str,
    result: str | None,
    error: str | None,
) -> None:
    rig = await make_rig(when=place(name))
    answered = await rig.outcome(rig.intent("when", attempt=0, purpose="predicate"))
    assert (answered["outcome"], answered["result"]) == (outcome, result)
    assert answered["error_class"] == ("none" if error is None else "predicate_panic")
    assert (answered["error"] or "").startswith(error or "")


async def test_an_intent_for_a_purpose_of_a_later_release_is_given_back(make_rig: MakeRig) -> None:
    rig = await make_rig(when=on_thread("yes"))
    answered = await rig.outcome(rig.intent("when", purpose="unknown"))
    assert answered["outcome"] == "unresolved"


# ---------------------------------------------------------------------- timeouts
@virtual_time
async def test_an_async_handler_is_cancelled_at_its_timeout_and_may_clean_up() -> None:
    cleaned: list[float] = []
    loop = asyncio.get_running_loop()

    async def careful(_event: Event, context: Context) -> None:
        assert context.cancelled.seconds_left == 5.0
        try:
            await asyncio.sleep(1_000)
        finally:
            assert context.cancelled.reason == "timeout"
            await asyncio.sleep(0.5)
            cleaned.append(loop.time())

    rig = await Rig(careful=careful).start()
    began_s = loop.time()
    outcome = await rig.outcome(rig.intent("careful", timeout_ms=5_000))
    assert (outcome["outcome"], outcome["error_class"]) == ("timeout", "handler_timeout")
    assert outcome["error"] == "ran for longer than its timeout of 5000 ms"
    assert cleaned == [pytest.approx(began_s + 5.5)]
    assert rig.counts.stray_counts == []


@virtual_time
async def test_a_handler_that_ends_in_time_is_not_disturbed_later() -> None:
    tokens: list[Any] = []

    async def quick(_event: Event, context: Context) -> str:
        tokens.append(context.cancelled)
        await asyncio.sleep(0.9)
        return "done"

    rig = await Rig(quick=quick).start()
    outcome = await rig.outcome(rig.intent("quick", timeout_ms=1_000))
    await asyncio.sleep(10)
    assert outcome["outcome"] == "success"
    assert not tokens[0]


@virtual_time
async def test_an_async_handler_that_blocks_past_its_timeout_has_timed_out() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)

    async def blocks(event: Event, _context: Context) -> str:
        loop.jump(event.payload)  # the loop cannot fire its timers meanwhile
        return "done"

    rig = await Rig(blocks=blocks).start()
    outcomes = [
        await rig.outcome(rig.intent("blocks", f"d{s}", timeout_ms=1_000, payload=str(s)))
        for s in (4.0, 1.0, 0.9)
    ]
    assert [each["outcome"] for each in outcomes] == ["timeout", "success", "success"]
    assert outcomes[0]["error_class"] == "handler_timeout"


@virtual_time
async def test_what_a_handler_answers_after_its_timeout_is_of_no_account() -> None:
    rig = await Rig(wait=odd_handlers.wait_for_token_async).start()
    outcome = await rig.outcome(rig.intent("wait", timeout_ms=1_000))
    assert (outcome["outcome"], outcome["result"]) == ("timeout", None)


@virtual_time
async def test_an_async_handler_that_swallows_its_cancellation_is_reported_and_left_alone() -> None:
    go_on = asyncio.Event()

    async def stubborn(_event: Event, _context: Context) -> None:
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    rig = await Rig(stubborn=stubborn).start()
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    outcome = await rig.outcome(rig.intent("stubborn", timeout_ms=3_000))
    assert outcome["outcome"] == "timeout"
    assert loop.time() - began_s == pytest.approx(4.0)  # its timeout, and a second of grace
    assert rig.counts.running[-1] == 0
    go_on.set()
    await asyncio.sleep(1)
    assert rig.counts.stray_counts == [1, 0]
    assert len(rig.log.outcomes) == 1


async def test_a_thread_sees_its_token_and_ends_within_its_grace(make_rig: MakeRig) -> None:
    rig = await make_rig(wait=odd_handlers.wait_for_token, check=odd_handlers.check_token)
    for name in ("wait", "check"):
        outcome = await rig.outcome(rig.intent(name, name, timeout_ms=20))
        assert outcome["outcome"] == "timeout"
    assert rig.counts.stray_counts == []


class Blocked:
    """A plain function that ends when the test says so."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, _event: Event, _context: Context) -> str:
        self.open.wait(60)
        return "too late"

    @property
    def handler(self) -> Handler:
        return Handler(self, is_async=False, takes_context=True)


async def test_a_thread_that_does_not_end_is_reported_and_another_takes_its_place(
    make_rig: MakeRig,
) -> None:
    settings = dataclasses.replace(SETTINGS, invoker_max_outstanding=1)
    blocked = Blocked()
    rig = await make_rig(settings, never=blocked.handler, fine=odd_handlers.answer)
    rig.deliver(rig.intent("never", "d1", timeout_ms=20), rig.intent("fine", "d2"))
    await rig.log.wait_for_outcomes(2)
    outcomes = {each["dispatch_id"]: each["outcome"] for each in rig.log.outcomes}
    assert outcomes == {"d1": "timeout", "d2": "success"}
    assert rig.counts.stray_counts == [1]
    blocked.open.set()
    await eventually(lambda: rig.counts.stray_counts == [1, 0], "the thread is back")
    assert (await rig.outcome(rig.intent("fine", "d3")))["outcome"] == "success"
    assert len(rig.log.outcomes) == 3


async def test_at_the_bound_of_strays_the_invoker_fails_so_that_it_starts_anew(
    make_rig: MakeRig,
) -> None:
    blocked = Blocked()
    rig = await make_rig(strays_max=3, never=blocked.handler)
    rig.deliver(*(rig.intent("never", f"d{n}", timeout_ms=20) for n in range(2)))
    await rig.log.wait_for_outcomes(2)
    assert not rig.invoker.failed.done()
    await rig.outcome(rig.intent("never", "d2", timeout_ms=20))
    failure = rig.invoker.failed.exception()
    assert isinstance(failure, InvokerStuck)
    assert failure.exit_code == 7
    assert str(failure).startswith("3 handlers were given up and do not end")
    blocked.open.set()


# ---------------------------------------------------------------------- where it runs
async def test_the_binding_says_where_and_the_function_when_it_does_not(make_rig: MakeRig) -> None:
    def handler(**placed: Any) -> Handler:
        return Handler(odd_handlers.where, is_async=False, **placed)

    assert handler().runs_in == "thread"
    assert handler(executor="process").runs_in == "process"
    assert dataclasses.replace(handler(), is_async=True).runs_in == "async"
    rig = await make_rig(
        here=odd_handlers.where,
        there=in_process("where"),
        nowhere=handler(executor="process", takes_context=True),
    )
    here = (await rig.outcome(rig.intent("here", "d1")))["result"]
    there = (await rig.outcome(rig.intent("there", "d2")))["result"]
    assert "handler-" in here
    assert "MainThread" in there
    nowhere = await rig.outcome(rig.intent("nowhere", "d3"))
    assert nowhere["outcome"] == "unresolved"
    assert "name it in a manifest" in nowhere["error"]


def test_the_rig_counts_all_that_an_observer_hears() -> None:
    heard = {name for name in vars(InvokerObserver) if not name.startswith("_")}
    assert heard == {
        *("started", "finished", "outstanding", "unusable", "leases_late"),
        *("strays", "loop_blocked"),
    }
