"""Where in a manifest something stands, and what is wrong there.

All problems of one manifest are collected, so that one round of fixing is enough.  Each names the
file, the 1-based `[[triggers]]` table, the trigger's id, the field and what was expected.

Source: SEMANTICS 1.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from streams.core.expression import Expressions
from streams.core.schedule import Calendar

__all__ = ["Place", "shown"]

_SHOWN_CHARS_MAX = 60


def shown(value: object) -> str:
    """Return a value as a problem quotes it: as TOML spells it, and short."""
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value) if not isinstance(value, dict) else "a table"
    return text if len(text) <= _SHOWN_CHARS_MAX else text[: _SHOWN_CHARS_MAX - 3] + "..."


@dataclass(frozen=True, slots=True)
class Place:
    """One place in a manifest; `problems` and `warnings` are shared by all places of the file.

    `expressions` compile what a manifest holds, `calendar` reads its schedules; without them what
    it holds is taken as it is.
    """

    file: str
    problems: list[str]
    table: str = ""
    path: str = ""
    expressions: Expressions | None = None
    calendar: Calendar | None = None
    warnings: list[str] = field(default_factory=list[str])

    @property
    def name(self) -> str:
        """Return the place without its file, for a problem of another place to name it."""
        return ": ".join(part for part in (self.table, self.path) if part)

    def in_table(self, table: str) -> Place:
        """Return the place of a table as a whole, for example `[[triggers]] 2 (on-issue)`."""
        return replace(self, table=table, path="")

    def field(self, name: str | int) -> Place:
        """Return the place of a field, or of an entry of a list, below this one."""
        if isinstance(name, int):
            return replace(self, path=f"{self.path}[{name}]")
        return replace(self, path=f"{self.path}.{name}" if self.path else name)

    def refuse(self, problem: str) -> None:
        """Note a problem; `problem` continues the field's name, as in `is 3, expected text`."""
        self.problems.append(self._said(problem))

    def warn(self, warning: str) -> None:
        """Note what is taken, but should be written in another way."""
        self.warnings.append(self._said(warning))

    def _said(self, text: str) -> str:
        parts = [self.file, self.table, f"{self.path} {text}" if self.path else text]
        return ": ".join(part for part in parts if part)

    def expected(self, found: object, expectation: str) -> None:
        """Note that a value is not what was expected."""
        self.refuse(f"is {shown(found)}, expected {expectation}")
