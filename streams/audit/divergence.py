"""What an audit finds: one place where the log does not say what the folds say.

A divergence names a position, what the recomputation gives for it, and what the log holds.  Its
texts never quote a record's body: of texts and bytes they tell the size and a short hash.

Source: DESIGN "Proof"; STYLE 2.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from streams.core.record import Position
from streams.errors import ReplayDivergence

__all__ = ["Divergence", "DivergenceKind", "first_difference", "shown"]


class DivergenceKind(StrEnum):
    """In what way the log and the recomputation differ."""

    MISSING_OUTPUT = "missing_output"
    UNEXPECTED_OUTPUT = "unexpected_output"
    DUPLICATE_OUTPUT = "duplicate_output"
    OUT_OF_ORDER = "out_of_order"
    DIFFERENT_OUTPUT = "different_output"
    WRONG_PARTITION = "wrong_partition"
    MAILBOX_CHANGED = "mailbox_changed"
    FOLD_RAISED = "fold_raised"
    SKIP_UNREQUESTED = "skip_unrequested"
    JOURNAL_GAP = "journal_gap"
    JOURNAL_CHANGED = "journal_changed"
    CHAIN_BROKEN = "chain_broken"
    MISSING_ROW = "missing_row"
    UNEXPECTED_ROW = "unexpected_row"
    DIFFERENT_ROW = "different_row"
    OFFSET_MISMATCH = "offset_mismatch"
    CHECKPOINT_CHANGED = "checkpoint_changed"


class Divergence(ReplayDivergence):
    """The first difference of one stage partition.

    `position` is where it lies; `cause` the mailbox record from which the expected or the found
    record was derived, when there is one; `note` what else helps to tell where it came from.
    """

    def __init__(
        self,
        kind: DivergenceKind,
        position: Position,
        expected: str,
        actual: str,
        *,
        cause: str | None = None,
        note: str | None = None,
    ) -> None:
        super().__init__((position.topic, position.partition, position.offset), expected, actual)
        self.kind = kind
        self.place = position
        self.cause = cause
        self.note = note

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it travel between processes, which an exception with keywords cannot by itself."""
        fields = (self.kind, self.place, self.expected, self.actual, self.cause, self.note)
        return _restored, fields

    def as_json(self) -> dict[str, Any]:
        """Return the divergence as a JSON object."""
        return {
            "kind": str(self.kind),
            "position": str(self.place),
            "expected": self.expected,
            "found": self.actual,
            "cause": self.cause,
            "note": self.note,
        }


def _restored(
    kind: DivergenceKind,
    position: Position,
    expected: str,
    actual: str,
    cause: str | None,
    note: str | None,
) -> Divergence:
    return Divergence(kind, position, expected, actual, cause=cause, note=note)


def shown(value: Any) -> str:  # noqa: ANN401 - any decoded value
    """Describe a value without quoting text or bytes."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return str(value)
        case str():
            return f"a text of {len(value)} characters ({_short_hash(value.encode())})"
        case bytes():
            return f"{len(value)} bytes ({_short_hash(value)})"
        case Mapping():
            return "a record"
        case _:
            return f"{len(value)} items"


def _short_hash(content: bytes) -> str:
    return "#" + blake2b(content, digest_size=4).hexdigest()


def first_difference(expected: Any, actual: Any, path: str = "") -> tuple[str, str, str] | None:  # noqa: ANN401
    """Find the first field in which two decoded values differ.

    Returns: its path, and both sides as `shown` tells them; None when the values are equal.
    """
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        names = [*expected, *(name for name in actual if name not in expected)]
        return _first(((name, _in(expected, name), _in(actual, name)) for name in names), path, ".")
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        pairs = enumerate(zip(expected, actual, strict=True))
        return _first(((f"[{at}]", one, other) for at, (one, other) in pairs), path, "")
    if expected == actual and type(expected) is type(actual):
        return None
    return path or "value", shown(expected), shown(actual)


def _in(record: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401
    return record.get(name, "absent")


def _first(fields: Any, path: str, joint: str) -> tuple[str, str, str] | None:  # noqa: ANN401
    for name, expected, actual in fields:
        found = first_difference(expected, actual, f"{path}{joint}{name}" if path else name)
        if found is not None:
            return found
    return None
