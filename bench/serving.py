"""The whole application under measurement: `harn orchestrator serve` with the bench's manifest."""

from __future__ import annotations

import dataclasses
import json
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

from confluent_kafka import TopicPartition

from bench.journal import stable_end
from bench.lab import Lab
from bench.orders import PARTITIONS
from bench.process import Process, running
from streams.codec import Codec
from streams.kafka import make_consumer
from streams.settings import Settings

MANIFEST = Path(__file__).parent / "manifest" / "harn.toml"
OUTBOX = "trigger.outbox"
_SUCCEEDED = b"dispatch_succeeded"
_WORKS_S = 60.0
_TRY_S = 0.5
_TRANSACTIONS = re.compile(
    r'^harn_stage_transactions_total\{stage="\w+"\} ([0-9.e+]+)', re.MULTILINE
)


@dataclasses.dataclass(frozen=True, slots=True)
class Serving:
    """Running roles: their process, and where their HTTP sides listen."""

    process: Process
    settings: Settings

    @property
    def events_url(self) -> str:
        """Where events are taken."""
        return f"http://127.0.0.1:{self.settings.http_port}/v1/events"

    def transactions(self) -> float:
        """Transactions that its stages have committed so far."""
        url = f"http://127.0.0.1:{self.settings.metrics_port}/metrics"
        with urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        return sum(float(found) for found in _TRANSACTIONS.findall(text))


@contextmanager
def serving(
    lab: Lab, roles: Sequence[str] = (), *, others: int = 0, slots: int | None = None
) -> Iterator[Serving]:
    """All roles, or some, in one process; ready when the block begins.

    `others` more processes are members of the same groups: all that a second core is good for.
    `slots` is how many handlers each runs at once, None for the default.
    """
    if slots is not None:
        chosen = dataclasses.replace(lab.settings, invoker_max_outstanding=slots)
        lab = dataclasses.replace(lab, settings=chosen)
    settings = dataclasses.replace(
        lab.settings, http_port=_free_port(), metrics_port=_free_port(), log_format="json"
    )
    command = ["streams.cli.main", "orchestrator", "serve", "--no-supervise"]
    command += ["--manifest", str(MANIFEST)]
    for role in roles:
        command += ["--role", role]
    with running(command, settings) as process:
        process.wait_for("ready")
        with ExitStack() as stack:
            members = [stack.enter_context(_another(lab)) for _ in range(others)]
            yield Serving(process, settings)
            for member in members:
                member.stop()
        process.stop()


@contextmanager
def _another(lab: Lab) -> Iterator[Process]:
    """A member of every group that only works, and takes no requests."""
    settings = dataclasses.replace(lab.settings, metrics_port=_free_port(), log_format="json")
    command = ["streams.cli.main", "orchestrator", "serve", "--no-supervise", "--no-apply"]
    command += ["--manifest", str(MANIFEST)]
    for role in ("registry", "inbox", "dispatch", "invoker"):
        command += ["--role", role]
    with running(command, settings) as process:
        process.wait_for("ready")
        yield process


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Outbox:
    """What came out from now on: when each event's success was seen, and what its handler said."""

    def __init__(self, settings: Settings, codec: Codec) -> None:
        self._codec = codec
        self._consumer = make_consumer(settings, group_id=None)
        self._consumer.assign(
            [
                TopicPartition(OUTBOX, partition, stable_end(self._consumer, OUTBOX, partition))
                for partition in range(PARTITIONS)
            ]
        )
        self.count = 0
        self.started_ns: dict[str, int] = {}

    def read(self, for_s: float, *, decode: bool = True) -> None:
        """Take in what comes within `for_s`; `count` counts successes, decoded or not."""
        for message in self._consumer.consume(10_000, for_s):
            if message.error() is not None or dict(message.headers() or ())["kind"] != _SUCCEEDED:
                continue
            self.count += 1
            if decode:
                value = self._codec.decode(message.value() or b"")[1]
                self.started_ns[value["event_id"]] = json.loads(value["result"])["started_ns"]

    def read_until(self, count: int, timeout_s: float, *, decode: bool = True) -> None:
        """Read until so many successes were seen.  TimeoutError."""
        deadline_s = time.monotonic() + timeout_s
        while self.count < count:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"{self.count} of {count} events came out in {timeout_s} s")
            self.read(_TRY_S / 10, decode=decode)

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()


def wait_until_it_works(place: Serving, codec: Codec) -> None:
    """Send events until one has come out: then the manifest is in force everywhere."""
    outbox = Outbox(place.settings, codec)
    deadline_s = time.monotonic() + _WORKS_S
    while not outbox.count:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"no event came out:\n{place.process.tail()}")
        for _ in range(PARTITIONS):
            post(place.events_url, event_json())
        outbox.read(_TRY_S)
    outbox.read(_TRY_S)
    outbox.close()


def event_json(
    event_id: str | None = None,
    payload_bytes: int = 100,
    *,
    kind: str = "bench",
    **payload: object,
) -> bytes:
    """An event that the manifest's trigger for this kind takes; `payload` is put beside a text."""
    body = {"text": "x" * payload_bytes, **payload}
    event = {"provider": "webhook", "kind": kind, "payload": body}
    return json.dumps(event if event_id is None else event | {"id": event_id}).encode()


def post(url: str, body: bytes) -> None:
    """Send one request; an HTTPError when it is not accepted."""
    request = Request(url, body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        answer.read()
