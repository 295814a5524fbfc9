"""What is used as a context and closed at its end, however that comes about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self

__all__ = ["Closable"]


class Closable(ABC):
    """Closed at the end of its `with` block; what the block raised is passed on."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held; called once."""
