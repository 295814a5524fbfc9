"""The whole pipeline in memory: the same topology, the same engine and folds, a virtual clock.

    def on_issue(event, context):
        if context.attempt == 1:
            raise RuntimeError("not yet")
        return {"labels": ["triage"]}

    driver = PipelineDriver(handlers={"on_issue": on_issue})
    driver.apply([binding("triage", handler="on_issue", events=["issues.opened"])])
    driver.emit(event(kind="issues.opened"))
    driver.finish()                               # through the retry, seconds later by its clock
    [done] = driver.records("trigger.outbox", "dispatch_succeeded")
    assert done.value["attempt"] == 2

`PipelineDriver.from_manifest("harn.toml")` takes bindings and handlers from a manifest instead.
With `Chaos` the order of things, where batches are cut, and who crashes when are drawn from a seed;
nothing that the pipeline promises may depend on them.  `driver.kafka` is the log, which
`streams.audit` reads like any other.

Source: DESIGN "Proof"; STYLE 2.15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from streams.audit.log import LogRecord
from streams.audit.verdict import Report
from streams.audit.verify import verify
from streams.codec import Codec, DecodeError
from streams.core import worker_queue
from streams.core.flow import flow_of
from streams.core.gate.decision import topic_of
from streams.core.inbox import mailbox_key
from streams.core.manifest import NAMESPACE_DEFAULT
from streams.core.record import Position
from streams.core.revision import POLICY_DEFAULT, last_revision
from streams.core.state import Fold
from streams.core.wire import BindingDefinition, ManifestApplied, Policy, TriggerEvent
from streams.edge.handlers import Handlers, load_manifest
from streams.edge.worker.consumer import Consumer
from streams.engine import Step
from streams.handler_api import Context
from streams.testing.builders import envelope
from streams.testing.chance import Chance
from streams.testing.chaos import Chaos
from streams.testing.clock import VirtualClock
from streams.testing.invoker import HandlerSource, Run, handler_source
from streams.testing.members import Members, Staff
from streams.testing.memory_kafka import MemoryKafka
from streams.testing.owner import Observer, StageOwner
from streams.testing.seen import Seen
from streams.testing.worker import CLAIM_TTL_MS, WorkerTerms
from topology import TOPOLOGY
from topology.layout import Layout

ENVELOPES = "trigger.inbox.envelopes"
REGISTRY = "triggers.registry"

STEPS_MAX = 1_000_000
"""Steps of one call: a pipeline that does more has a loop in it."""

YEAR_MS = 366 * 86_400_000


class Refused(Exception):  # noqa: N818 - the registry's answer
    """The registry did not take a manifest: conflict or invalid, and why."""


def ignore(_owner: StageOwner, _step: Step) -> None:
    """Observe nothing."""


class PipelineDriver:
    """The pipeline over a `MemoryKafka`.  One thread; nothing happens but what it is told.

    Args:    handlers: functions by the reference that bindings name, or what resolves one.
             partitions: of mailboxes and outputs; the registry has one.
             duration_ms: how long handlers take by the virtual clock, or a function that says it.
             invokers: members that run handlers.  outstanding_max: what one of them runs at once.
             policy: what `apply` puts in force unless it names another.
             chaos: what goes wrong.  observe: called with every step before it is written.
             folds: what stages do instead, by name: a fold that raises, for example.
    Raises:  ValueError when a handler has a wrong form.
    """

    def __init__(  # noqa: PLR0913 - all keywords, and each has a default
        self,
        *,
        handlers: Mapping[str, Callable[..., Any]] | HandlerSource | None = None,
        partitions: int = 2,
        duration_ms: int | Callable[[Context], int] = 0,
        invokers: int = 1,
        outstanding_max: int = 64,
        policy: Policy = POLICY_DEFAULT,
        chaos: Chaos | None = None,
        codec: Codec | None = None,
        observe: Observer = ignore,
        folds: Mapping[str, Fold] | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.codec = Codec() if codec is None else codec
        self.policy = policy
        self._chaos = chaos
        self._chance = Chance(0 if chaos is None else ~chaos.seed)
        self._applies = 0
        self._seen: dict[Position, Seen] = {}
        self.kafka = MemoryKafka(self.clock, self._comes_twice)
        layout = Layout(partitions=partitions)
        for topic in TOPOLOGY.topics:
            if not topic.is_family:
                self.kafka.create(topic.name, layout.partitions_of(topic))
        self._duration = duration_ms if callable(duration_ms) else lambda _context: duration_ms
        staff = Staff(
            handlers=handler_source(handlers),
            duration=self._duration,
            invokers=invokers,
            outstanding_max=outstanding_max,
            lease_ms=policy["lease_ms"],
        )
        self.members = Members(
            self.kafka,
            self.codec,
            TOPOLOGY,
            staff,
            chaos=chaos,
            observe=observe,
            folds=folds or {},
        )

    @classmethod
    def from_manifest(cls, path: str | Path, **options: Any) -> PipelineDriver:  # noqa: ANN401
        """Load a manifest and its handlers, and apply it.  `options` as for the class itself.

        Raises: ManifestError with every problem of the manifest and its handlers.
        """
        manifest = load_manifest(Path(path))
        driver = cls(handlers=Handlers.load(manifest), **options)
        driver.apply(manifest.bindings, namespace=manifest.namespace)
        return driver

    def _comes_twice(self) -> bool:
        return self._chaos is not None and self._chance.happens(self._chaos.duplicate_per_mille)

    # ------------------------------------------------------------------ what comes from outside
    def append(
        self,
        topic: str,
        kind: str,
        value: Mapping[str, Any],
        *,
        key: str = "",
        partition: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Position:
        """Append any record to any topic; KeyError when the topic has no such kind."""
        extra = [(name, text.encode()) for name, text in sorted((headers or {}).items())]
        return self.kafka.append(
            topic,
            self.codec.encode(TOPOLOGY.kinds[topic, kind], value),
            key=key.encode(),
            headers=[("kind", kind.encode()), *extra],
            partition=partition,
        )

    def emit(
        self,
        event: TriggerEvent,
        *,
        trigger_id: str | None = None,
        binding_version: int | None = None,
        replay_of_event_id: str | None = None,
        webhook_path: str | None = None,
        dlq_entry_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Position:
        """Append an event's envelope, as ingest does."""
        value = envelope(
            event,
            trigger_id=trigger_id,
            binding_version=binding_version,
            replay_of_event_id=replay_of_event_id,
            webhook_path=webhook_path,
            dlq_entry_id=dlq_entry_id,
        )
        replay = replay_of_event_id is not None
        key = mailbox_key(event, replay=replay, webhook_path=webhook_path)
        return self.append(ENVELOPES, "event_ingested", value, key=key, headers=headers)

    def apply(
        self,
        bindings: Sequence[BindingDefinition],
        *,
        namespace: str = NAMESPACE_DEFAULT,
        policy: Policy | None = None,
        expected_revision: int | None = None,
    ) -> int:
        """Make bindings the truth of their namespace; return the revision then in force.

        Runs until the pipeline is idle, so that every partition has met the revision.

        Raises: Refused when the registry answers conflict or invalid.
        """
        if expected_revision is None:
            self.run_until_idle()
        apply_id = self.apply_soon(
            bindings, namespace=namespace, policy=policy, expected_revision=expected_revision
        )
        self.run_until_idle()
        for seen in self.records(REGISTRY, "revision_published", "apply_answered"):
            if seen.value["apply_id"] == apply_id:
                if seen.value.get("answer") in {"conflict", "invalid"}:
                    raise Refused(f"{seen.value['answer']}: {seen.value['reason']}")
                return seen.value["revision"]
        raise AssertionError(f"the registry did not answer {apply_id}")

    def apply_soon(
        self,
        bindings: Sequence[BindingDefinition],
        *,
        namespace: str = NAMESPACE_DEFAULT,
        policy: Policy | None = None,
        expected_revision: int | None = None,
    ) -> str:
        """Append the request of an apply and return its id; what comes of it comes later.

        The topics that the bindings name are created first, as `harn trigger apply` does.
        """
        self._applies += 1
        for binding in bindings:
            flow = flow_of(binding)
            topics = [topic_of(gate, binding["trigger_id"]) for gate in flow.declared]
            if flow.queue is not None:
                topics.append(worker_queue.topic_of(flow.queue))
            for topic in topics:
                if not self.kafka.partitions(topic):
                    self.kafka.create(topic, 1)
        request: ManifestApplied = {
            "apply_id": f"apply_{self._applies}",
            "namespace": namespace,
            "expected_revision": self.revision if expected_revision is None else expected_revision,
            "bindings": list(bindings),
            "policy": self.policy if policy is None else policy,
            "applied_by": "driver",
        }
        self.append(REGISTRY, "manifest_applied", request, key=namespace, partition=0)
        return request["apply_id"]

    def work(
        self,
        consumer: str | Path | Consumer,
        *queues: str,
        consumer_id: str = "worker",
        concurrency: int = 1,
        claim_ttl_ms: int = CLAIM_TTL_MS,
    ) -> None:
        """Start a worker of these queues, which runs a consumer manifest as `harn worker run` does.

        It is there from now on; another one of the same name takes its place, as a restart does.

        Raises: ManifestError with every problem of the manifest and its handlers.
        """
        if not isinstance(consumer, Consumer):
            consumer = Consumer.load(Path(consumer))
        names = tuple(worker_queue.canonical(queue) for queue in queues)
        terms = WorkerTerms(consumer_id, names, consumer, self._duration, concurrency, claim_ttl_ms)
        self.members.employ(terms)

    # ------------------------------------------------------------------ what happens
    def step(self) -> bool:
        """Let one thing happen; False when nothing can before time passes."""
        actions = self.members.actions()
        if self._chaos is None:
            action = next(actions, None)
            if action is None:
                return False
        else:
            possible = list(actions)
            if not possible:
                return False
            action = self._chance.pick(possible)
            if self._chaos.pause_ms_max:
                self.clock.move(self._chance.below(self._chaos.pause_ms_max + 1))
        action()
        return True

    def run_until_idle(self) -> None:
        """Let happen what can happen before time passes.

        Raises: FoldFailed when a fold raised and its partition stands still.
        """
        for _ in range(STEPS_MAX):
            if not self.step():
                break
        else:
            raise AssertionError(f"{STEPS_MAX} steps, and there is no end of it")
        for failure in self.members.halted().values():
            raise failure

    def advance(self, milliseconds: int) -> None:
        """Let time pass, and happen what it brings, in order.  Raises as `run_until_idle`."""
        end_ms = self.clock.now_ms + milliseconds
        self.run_until_idle()
        while (due_ms := self.members.next_due_ms()) is not None and due_ms <= end_ms:
            self.clock.move(max(due_ms - self.clock.now_ms, 0))
            self.run_until_idle()
        self.clock.move(max(end_ms - self.clock.now_ms, 0))

    def finish(self, limit_ms: int = YEAR_MS) -> None:
        """Let time pass until nothing is left that waits for it: retries, leases, handlers.

        Raises: AssertionError when something still waits after `limit_ms`; as `run_until_idle`.
        """
        end_ms = self.clock.now_ms + limit_ms
        self.run_until_idle()
        while (due_ms := self.members.next_due_ms()) is not None:
            if due_ms > end_ms:
                raise AssertionError(f"something is due {due_ms - end_ms} ms after the limit")
            self.clock.move(max(due_ms - self.clock.now_ms, 0))
            self.run_until_idle()

    def resume(self, position: Position, *, skip: bool = False) -> None:
        """Give the operator's word about a halted partition: try again, or pass over what failed.

        Raises: KeyError when nothing is halted there.
        """
        failure = self.members.halted()[position]
        owner = next(each for each in self.members.owners() if each.halted_at == position)
        word = {"stage": owner.name, "partition": position.partition, "requested_by": "driver"}
        if skip:
            word |= {"topic": position.topic, "offset": position.offset, "timer": failure.timer}
            word["reason"] = str(failure)
        self.append(
            position.topic,
            "stage_skip" if skip else "stage_resume",
            word,
            partition=position.partition,
        )
        owner.resume(skip=skip)

    # ------------------------------------------------------------------ what there is to see
    @property
    def revision(self) -> int:
        """The revision that the registry published last; 0 before the first."""
        return last_revision(self.members.owner("registry", 0).memory.state)

    @property
    def runs(self) -> list[Run]:
        """Every call of a handler so far, also of those whose word never got out."""
        return self.members.runs

    def audit(self) -> Report:
        """Recompute everything from the log alone, and compare it with what was written."""
        return verify(self.kafka, self.members.stages)

    def records(self, topic: str, *kinds: str) -> list[Seen]:
        """Return a topic's committed records, decoded, in the order of appending.

        `kinds` are the header's; none means all of them.
        """
        return list(self.history(topic, kinds=kinds))

    def history(self, *topics: str, kinds: Sequence[str] = ()) -> Iterator[Seen]:
        """Yield the committed records of several topics, decoded, in the order of appending."""
        for position, record in self.kafka.history(*topics):
            seen = self._seen.get(position)
            if seen is None:
                seen = self._seen[position] = self._decoded(position, record)
            if record.value is not None and (not kinds or seen.kind in kinds):
                yield seen

    def _decoded(self, position: Position, record: LogRecord) -> Seen:
        headers = {name: text.decode(errors="replace") for name, text in record.headers}
        key = (record.key or b"").decode(errors="replace")
        try:
            value = {} if record.value is None else self.codec.decode(record.value)[1]
        except DecodeError:  # what a stage quarantines; `kafka` has its bytes
            value = {}
        return Seen(position, record.timestamp, key, headers.get("kind", ""), headers, value)

    def rows(self, stage: str) -> list[dict[str, Any]]:
        """Return a stage's committed rows, decoded, by partition and key."""
        return [
            {
                key.decode(): self.codec.decode(value)[1]
                for key, value in sorted(owner.memory.rows.store.items())
            }
            for owner in self.members.owners()
            if owner.name == stage
        ]
