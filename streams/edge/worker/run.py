"""One job, from its body to its outcome: its trigger's handler, if its predicate lets it.

| what happens | outcome | acked |
|---|---|---|
| the handler returns | `succeeded` | yes |
| the predicate says no | `skipped` | yes |
| the handler raises, takes too long, dies, returns what no record holds | `failed` | no |
| the predicate raises, or answers neither true nor false | `failed` | no |
| the key of a gate cannot be found | `failed` | no |
| the worker stops before it ends | `interrupted` | no: released |
| the body is no job; no handler for it | `none`, with an error | no |

What is not acked comes again when its claim runs out: that is the retry, and the queue's bound on
deliveries ends it.  The manifest's `retry` is for dispatches.

Source: SEMANTICS 5.4; DESIGN "A job".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, cast

from streams.codec import Codec, DecodeError
from streams.core.expression import Failed
from streams.core.intake_plan import keys_of
from streams.core.wire import InvokePurpose, ResponseOutcome, TriggerDispatch
from streams.edge.executors.call import Call
from streams.edge.executors.outcome import Outcome
from streams.edge.worker.consumer import Consumer, Resolved
from streams.edge.worker.held import HeldJob
from streams.expressions import EXPRESSIONS
from streams.handler_api import CancelToken, Context, Handler
from streams.handler_emissions import Emissions

__all__ = ["Answer", "CallRunner", "JobRunner", "OnAnswer"]

_NO_EMISSIONS = Emissions(
    refusal="a worker's handler cannot emit: its job has no transaction to send it in"
)
"""Of all jobs: what refuses everything never changes."""


class Answer(NamedTuple):
    """What a job came to."""

    outcome: ResponseOutcome
    result: str | None = None
    error: str | None = None

    @property
    def done(self) -> bool:
        """Whether the job is done with, and so acked."""
        return self.outcome in ("succeeded", "skipped")


OnAnswer = Callable[[HeldJob, Answer], None]
OnGated = Callable[[HeldJob, dict[str, str]], None]


class CallRunner(Protocol):
    """What runs handlers."""

    def start(self, call: Call) -> None:
        """Run a call; its outcome may come before this returns."""
        ...


class JobRunner:
    """Runs jobs through the executors; `on_answer` is told each one's outcome, once.

    `on_gated` is told of a job that has gates, with their keys, once its predicate has let it pass:
    it is started again when it is admitted, and is no business of this one otherwise.
    """

    def __init__(
        self,
        codec: Codec,
        consumer: Consumer,
        runner: CallRunner,
        on_answer: OnAnswer,
        on_gated: OnGated,
    ) -> None:
        self._codec = codec
        self._consumer = consumer
        self._runner = runner
        self._on_answer = on_answer
        self._on_gated = on_gated

    def adopt(self, consumer: Consumer) -> None:
        """Run jobs that begin from now on by another manifest."""
        self._consumer = consumer

    def start(self, held: HeldJob) -> None:
        """Run a job; its answer may come before this returns."""
        if held.resume is not None:
            resume, held.resume = held.resume, None
            resume()
            return
        job = self._read(held)
        if isinstance(job, str):
            self._on_answer(held, Answer("none", error=job))
            return
        held.trigger_id, held.event_id = job["trigger_id"], job["event"]["id"]
        held.dispatch_id = job["dispatch_id"]
        found = self._consumer.resolve(job["trigger_id"])
        if isinstance(found, str):
            self._on_answer(held, Answer("none", error=found))
        elif held.admitted:
            self._handle(held, job, found)  # its predicate came before its gates
        elif found.predicate is not None:
            decided = partial(self._decided, held, job, found)
            timeout_ms = found.predicate_timeout_ms
            self._call(held, job, found.predicate, "predicate", timeout_ms, decided)
        elif found.cel is not None:
            verdict = EXPRESSIONS.cel(found.cel, job["event"])
            if verdict is True:
                self._pass(held, job, found)
            elif verdict is False:
                self._on_answer(held, Answer("skipped"))
            else:
                self._on_answer(held, Answer("failed", error=_no_verdict(verdict)))
        else:
            self._pass(held, job, found)

    def _read(self, held: HeldJob) -> TriggerDispatch | str:
        body, held.body = held.body, None
        assert body is not None, "a job begins once"
        try:
            schema, job = self._codec.decode(body)
        except DecodeError as error:
            return f"the body cannot be read: {error}"
        if schema != "trigger_dispatch":
            return f"the body is a {schema} record, expected trigger_dispatch"
        return cast("TriggerDispatch", job)

    def _decided(
        self, held: HeldJob, job: TriggerDispatch, found: Resolved, outcome: Outcome
    ) -> None:
        if outcome.outcome != "success":
            self._on_answer(held, _answer(outcome))
        elif outcome.result == "false":
            self._on_answer(held, Answer("skipped"))
        else:
            self._pass(held, job, found)

    def _pass(self, held: HeldJob, job: TriggerDispatch, found: Resolved) -> None:
        """Go on with a job that its predicate lets pass: to its gates, if it has any."""
        if not found.gate_keys:
            self._handle(held, job, found)
            return
        keys = keys_of(found.gate_keys, job["event"], EXPRESSIONS)
        if isinstance(keys, Failed):
            self._on_answer(held, Answer("failed", error=keys.reason))
            return
        held.resume = partial(self._handle, held, job, found)
        self._on_gated(held, keys)

    def _handle(self, held: HeldJob, job: TriggerDispatch, found: Resolved) -> None:
        ended = partial(self._ended, held)
        self._call(held, job, found.handler, "handler", found.timeout_ms, ended)

    def _ended(self, held: HeldJob, outcome: Outcome) -> None:
        self._on_answer(held, _answer(outcome))

    def _call(
        self,
        held: HeldJob,
        job: TriggerDispatch,
        handler: Handler,
        purpose: InvokePurpose,
        timeout_ms: int | None,
        ended: Callable[[Outcome], None],
    ) -> None:
        held.call = Call(
            handler=handler,
            event=job["event"],
            context=_context(held, job),
            purpose=purpose,
            timeout_ms=timeout_ms,
            ended=ended,
        )
        self._runner.start(held.call)


def _context(held: HeldJob, job: TriggerDispatch) -> Context:
    """Return what the handler is told: its idempotency key is the job's, at every delivery."""
    return Context(
        attempt=held.delivery,
        attempt_id=f"worker.{held.queue}/{held.job_event_id}",
        dispatch_id=job["dispatch_id"],
        trigger_id=job["trigger_id"],
        binding_key=job["binding_key"],
        event_id=job["event"]["id"],
        replay_of_event_id=job["replay_of_event_id"],
        cancelled=CancelToken(),
        emissions=_NO_EMISSIONS,
    )


def _answer(outcome: Outcome) -> Answer:
    match outcome.outcome:
        case "success":
            return Answer("succeeded", outcome.result)
        case "interrupted":
            return Answer("interrupted", error=outcome.error)
        case "cancelled":
            return Answer("cancelled", error=outcome.error)
        case "unresolved":
            return Answer("none", error=outcome.error)
        case _:
            return Answer("failed", error=outcome.error)


def _no_verdict(verdict: object) -> str:
    if isinstance(verdict, Failed):
        return f"the predicate failed: {verdict.reason}"
    return f"the predicate answered {type(verdict).__name__}, expected true or false"
