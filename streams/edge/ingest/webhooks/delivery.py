"""What came, what was made of it, and what a provider's scheme has to say about both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec

from streams.core.clock import rfc3339
from streams.edge.ingest.body import MalformedBody
from streams.edge.ingest.events import explain_json
from streams.edge.ingest.webhooks.signing import Misfit

__all__ = [
    "FORM",
    "JSON",
    "Arrived",
    "Challenge",
    "Delivered",
    "Scheme",
    "decode",
    "form_fields",
    "header",
    "kind_of",
    "time_of",
]

_Shape = TypeVar("_Shape")

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"

_FIELDS_MAX = 100
_SECONDS_MAX = 253_402_300_799  # the end of the year 9999


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request as it came; names of `headers` are found in any case."""

    headers: Mapping[str, str]
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What a delivery says: the fields of an event that its provider decides.

    `payload` is JSON.  `raw_body` is what came, when that was not the payload.
    """

    kind: str
    payload: bytes
    dedupe_key: str | None
    occurred_at: str | None = None
    raw_body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Challenge:
    """A request that is no event: it is answered with `text`."""

    text: str


class Scheme(Protocol):
    """How one provider signs and spells its deliveries.

    `content_types` are taken.  `quiet`: the sender shows people what it is answered, so that it is
    answered 200 with nothing.
    """

    @property
    def content_types(self) -> tuple[str, ...]:
        """Content types of its deliveries."""
        ...

    @property
    def quiet(self) -> bool:
        """Whether an accepted delivery is answered without a body."""
        ...

    def key_of(self, secret: bytes) -> bytes:
        """Return the key that a secret stands for.  Raises ValueError when it can be none."""
        ...

    def misfit(self, arrived: Arrived, keys: Sequence[bytes], now_s: int) -> Misfit | None:
        """Return why nobody who knows a key can have sent this now, or None."""
        ...

    def read(self, arrived: Arrived) -> Delivered | Challenge:
        """Return what a delivery says.  Raises MalformedBody."""
        ...


def header(arrived: Arrived, name: str) -> str:
    """Return a header that a delivery must have.  Raises MalformedBody."""
    found = arrived.headers.get(name, "")
    if not found:
        raise MalformedBody([f"header {name} is missing"])
    return found


def decode(text: bytes, shape: type[_Shape]) -> _Shape:
    """Read a JSON object of which `shape` names what matters.  Raises MalformedBody."""
    try:
        text.decode()
        return msgspec.json.decode(text, type=shape)
    except UnicodeDecodeError as error:
        raise MalformedBody([f"the body is not UTF-8 at byte {error.start}"]) from error
    except msgspec.ValidationError as error:
        raise MalformedBody([f"the body is not as its provider sends it: {error}"]) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedBody([f"the body {explain_json(text, error)}"]) from error


def form_fields(body: bytes) -> dict[str, str]:
    """Read a form; the first of several fields of a name counts.  Raises MalformedBody."""
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_FIELDS_MAX,
        )
    except ValueError as error:
        raise MalformedBody([f"the body is no form of at most {_FIELDS_MAX} fields"]) from error
    fields: dict[str, str] = {}
    for name, value in pairs:
        fields.setdefault(name, value)
    return fields


def kind_of(name: str, action: object) -> str:
    """Return `<name>.<action>`, or the name alone without an action."""
    return f"{name}.{action}" if isinstance(action, str) and action else name


def time_of(moment: object) -> str | None:
    """Return a provider's time, seconds since epoch or RFC 3339, as RFC 3339; None for neither."""
    if isinstance(moment, int | float) and not isinstance(moment, bool):
        return rfc3339(int(moment * 1_000)) if 0 <= moment <= _SECONDS_MAX else None
    if not isinstance(moment, str):
        return None
    try:
        found = datetime.fromisoformat(moment)
        if found.tzinfo is None:
            return None
        return rfc3339(int(found.astimezone(UTC).timestamp() * 1_000))
    except (ValueError, OverflowError):
        return None
