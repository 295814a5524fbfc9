"""What the event loop calls must not fail unheard: the loop would only log it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

__all__ = ["ends_the_role"]

P = ParamSpec("P")


class _Fails(Protocol):
    def fail(self, error: BaseException) -> None:
        """End the role."""
        ...


S = TypeVar("S", bound=_Fails)


def ends_the_role(
    method: Callable[Concatenate[S, P], None],
) -> Callable[Concatenate[S, P], None]:
    """Let an exception in `method`, a bug, fail the service."""

    @functools.wraps(method)
    def guarded(self: S, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except BaseException as error:
            self.fail(error)
            raise

    return guarded
