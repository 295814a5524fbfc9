"""How one setting is declared: its variable, the kind of value it takes, and what it means.

A kind reads text and refuses what it cannot use; a declaration travels in the metadata of a
dataclass field, so the documentation, the parser and the value cannot drift apart.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streams.path_kind import is_file

__all__ = [
    "ADDRESSES",
    "FILE",
    "NAME",
    "ORIGINS",
    "PATH",
    "PORT",
    "TEXT",
    "URL",
    "Declaration",
    "Kind",
    "SettingRow",
    "choice",
    "integer",
    "setting",
]

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:,/]+):(\d{1,5})")
_REDACTED = "(set)"
# Whatever stands before the last `@`: a password that nobody escaped may hold anything.
_CREDENTIALS = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*://)?.*@", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of value: `parse` raises ValueError on whatever `expected` does not describe."""

    expected: str
    parse: Callable[[str], object]


def integer(low: int, high: int) -> Kind:
    """Take integers from `low` to `high`, both included; underscores may group digits."""

    def parse(text: str) -> int:
        number = int(text)
        if not low <= number <= high:
            raise ValueError(text)
        return number

    return Kind(f"an integer from {low} to {high}", parse)


def choice(*names: str) -> Kind:
    """Take one of `names`, exactly as spelled."""

    def parse(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return Kind("one of " + ", ".join(names), parse)


def _parse_addresses(text: str) -> str:
    addresses = [part.strip() for part in text.split(",")]
    for address in addresses:
        found = _ADDRESS.fullmatch(address)
        if found is None or not 1 <= int(found[2]) <= 65_535:
            raise ValueError(address)
    return ",".join(addresses)


def _parse_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(text)
    return text.rstrip("/")


def _parse_path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # `~` of nobody
        raise ValueError(text) from error


def _parse_file(text: str) -> Path:
    path = _parse_path(text)
    if not is_file(path):
        raise ValueError(text)
    return path


def _parse_name(text: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9._-]{1,200}", text) is None:
        raise ValueError(text)
    return text


def _parse_origins(text: str) -> str:
    origins = [part.strip().lower() for part in text.split(",")]
    for origin in origins:
        parts = urlsplit(origin)
        bare = parts.scheme in {"http", "https"} and f"{parts.scheme}://{parts.netloc}" == origin
        if origin != "*" and not (bare and parts.hostname):
            raise ValueError(origin)
    return ",".join(origins)


ADDRESSES = Kind("host:port[,host:port...]", _parse_addresses)
TEXT = Kind("text", str)
NAME = Kind("1 to 200 letters, digits, dots, dashes or underscores", _parse_name)
URL = Kind("an http:// or https:// address", _parse_url)
ORIGINS = Kind("origins such as https://console.example.com, with commas, or *", _parse_origins)
PATH = Kind("a path", _parse_path)
FILE = Kind("the path of an existing file", _parse_file)
PORT = integer(0, 65_535)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What is known of a setting besides its name, type and default.

    `shown` replaces the default in the documentation where it follows from other settings; `also`
    is another name of the variable, read where `env` is not set.
    """

    env: str
    kind: Kind
    doc: str
    also: str | None = None
    secret: bool = False
    shown: str | None = None

    def found(self, lookup: Callable[[str], str | None], /) -> tuple[str, str]:
        """Return the variable that is set, and its text; empty text when none is."""
        names = (self.env,) if self.also is None else (self.env, self.also)
        set_to = ((name, (lookup(name) or "").strip()) for name in names)
        return next((each for each in set_to if each[1]), (self.env, ""))

    def shown_value(self, text: str) -> str:
        """Return a value as it may be told: an address has neither user nor password."""
        if self.kind not in (URL, ADDRESSES):
            return text
        return _CREDENTIALS.sub(lambda found: f"{found[1] or ''}***@", text)

    def row(self, name: str, default: object, value: object) -> SettingRow:
        """Return the table line of this setting, its value redacted when it is a secret."""
        hidden = self.secret and value is not None
        return SettingRow(
            name=name,
            env=self.env,
            default=_text(default) if self.shown is None else self.shown,
            value=_REDACTED if hidden else self.shown_value(_text(value)),
            expected=self.kind.expected,
            doc=self.doc,
            also=self.also,
        )


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One line of the settings table, as text; an unset value is empty."""

    name: str
    env: str
    default: str
    value: str
    expected: str
    doc: str
    also: str | None


def setting(
    env: str,
    default: Any,  # noqa: ANN401
    kind: Kind,
    doc: str,
    *,
    also: str | None = None,
    secret: bool = False,
    shown: str | None = None,
) -> Any:  # noqa: ANN401
    """Declare a field of a settings dataclass; see `Declaration` for the arguments."""
    declaration = Declaration(env=env, kind=kind, doc=doc, also=also, secret=secret, shown=shown)
    # An address may hold a password as well.
    shows = not secret and kind is not URL
    return field(default=default, metadata={"declaration": declaration}, repr=shows)


def _text(value: object) -> str:
    return "" if value is None else str(value)
