"""Values that many records share but for a few ids: they need not be made to be encoded.

A fold that says nearly the same of each of a million events names what it says, the `pattern`, and
gives the ids apart.  Whoever encodes such a value may have learned its pattern's bytes, and put the
ids into them; everybody else sees a mapping like any other, which is made when it is looked at.

Invariant: of two values with equal patterns, each is `draw(*texts)` of either's `draw` with its own
`texts`; `draw` puts texts into texts, beside others or alone, and never looks into them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any


class Patterned(Mapping[str, Any]):
    """A record's value by its pattern; `draw` makes it of `texts`."""

    __slots__ = ("_value", "draw", "pattern", "texts")

    def __init__(
        self, pattern: Hashable, texts: tuple[str, ...], draw: Callable[..., Mapping[str, Any]]
    ) -> None:
        self.pattern = pattern
        self.texts = texts
        self.draw = draw
        self._value: Mapping[str, Any] | None = None

    def value(self) -> Mapping[str, Any]:
        """Return the whole value."""
        if self._value is None:
            self._value = self.draw(*self.texts)
        return self._value

    def __getitem__(self, name: str, /) -> Any:  # noqa: ANN401 - whatever the field holds
        return self.value()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.value())

    def __len__(self) -> int:
        return len(self.value())
