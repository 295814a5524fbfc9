"""Tells what becomes of events, a line a step, from the log: the demo's eyes."""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_END
from rich.console import Console

from streams.cli.plain import escape
from streams.codec import DecodeError
from streams.edge.codecs import codec_of
from streams.edge.topic_reader import ReadRecord, TopicReader
from streams.settings import Settings

_TOPIC = "triggers.lifecycle"
_READ_S = 0.2
# A parked one goes on when its destination is tried again: minutes later, so it is not waited for.
_SETTLED = frozenset(
    {
        "DispatchSucceeded",
        "DispatchParked",
        "DlqMoved",
        "DispatchCancelled",
        "EventUnmatched",
        "EventDeduplicated",
    }
)
_STYLES = {
    "DispatchSucceeded": "green",
    "DispatchFailed": "yellow",
    "DispatchParked": "yellow",
    "RetryScheduled": "yellow",
    "DlqMoved": "red",
    "EventDeduplicated": "cyan",
    "EventUnmatched": "dim",
}


class Story:
    """Follows the lifecycle topic.  `tell` blocks up to 0.2 s: call it in a thread."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self._console = console
        self._codec = codec_of(settings)
        self._reader = TopicReader(settings, _TOPIC)
        self._kinds: dict[str, str] = {}
        self._started = False
        self.settled: set[str] = set()

    def start(self) -> None:
        """Follow from the present end on; a second call changes nothing."""
        if self._started:
            return
        self._started = True
        ends = {p: self._reader.watermarks(p)[1] for p in range(self._reader.partitions)}
        self._reader.start_at(ends or {0: OFFSET_END})

    def accepted(self, event_id: str, sample: dict[str, Any]) -> None:
        """Ingest took an event."""
        self._kinds[event_id] = sample["kind"]
        self._line(event_id, "accepted", "", "bold")

    def ended(self, events: set[str]) -> bool:
        """Whether every one of these has its outcome, or waits for a destination that fails."""
        return events <= self.settled

    def tell(self) -> None:
        """Print what came since."""
        for record in self._reader.read(_READ_S):
            self._tell(record)

    def close(self) -> None:
        """Let go of the connection."""
        self._reader.close()

    def _tell(self, record: ReadRecord) -> None:
        try:
            _, value = self._codec.decode(record.value or b"")
        except DecodeError:
            return  # of nobody's event
        event_id: str | None = value.get("event_id")
        if event_id is None:
            return
        if record.kind in _SETTLED:
            self.settled.add(event_id)
        if event_id in self._kinds:
            self._line(event_id, record.kind, _detail(value), _STYLES.get(record.kind, ""))

    def _line(self, event_id: str, step: str, detail: str, style: str) -> None:
        kind = self._kinds[event_id]
        shown = f"[{style}]{step:<18}[/]" if style else f"{step:<18}"
        self._console.print(
            f"  …{event_id[-6:]}  {kind:<18} {shown} {escape(detail)}", soft_wrap=True
        )


def _detail(value: dict[str, Any]) -> str:
    """The part of a lifecycle record that tells a person something."""
    if "final_error" in value:
        return f"{value['reason']} after {value['attempt_count']} attempts: {value['final_error']}"
    if "first_event_id" in value:
        return f"seen as …{value['first_event_id'][-6:]}"
    if "delay_ms" in value:
        return f"attempt {value['attempt']} in {value['delay_ms']} ms"
    if "destination" in value and "attempt" in value:
        return f"attempt {value['attempt']} waits: {value['destination']} has failed too often"
    parts = [f"attempt {value['attempt']}"] if "attempt" in value else []
    parts += [str(value[name]) for name in ("result", "error") if value.get(name)]
    return ": ".join(parts)
