"""What a trigger's `handler` names: a local function, or a target by URI.

| text | is |
|---|---|
| `fn` | function `fn` of the export `lib` |
| `module::fn` | function `fn` of the export `module` |
| `a2a://<target>`, `worker://<queue>`, `pool://<pool>` | a remote agent, a worker queue, a pool |

Source: SEMANTICS 1.7; seed trigger-dispatcher, "Handler URI resolution".
"""

from __future__ import annotations

from keyword import iskeyword
from typing import Literal, NamedTuple

__all__ = ["DEFAULT_MODULE", "EXPECTED", "HandlerKind", "HandlerUri", "is_name", "parse_handler"]

HandlerKind = Literal["local", "a2a", "worker", "pool"]

DEFAULT_MODULE = "lib"
"""The export that a bare function name belongs to."""

_SCHEMES: dict[str, HandlerKind] = {"a2a": "a2a", "worker": "worker", "pool": "pool"}


EXPECTED = "expected a function, as 'fn' or 'module::fn', or a queue, as 'worker://<queue>'"
"""What a handler may be in this release."""


class HandlerUri(NamedTuple):
    """A parsed handler.

    `target` is what follows the scheme, or the local reference as written.  `module` and `function`
    are set for local handlers only.
    """

    kind: HandlerKind
    target: str
    module: str = ""
    function: str = ""

    @property
    def uri(self) -> str:
        """Return the URI form; a local handler's is its reference."""
        return self.target if self.kind == "local" else f"{self.kind}://{self.target}"


def is_name(text: str, /) -> bool:
    """Whether `text` can name a Python function or module."""
    return text.isidentifier() and not iskeyword(text)


def parse_handler(text: str, /) -> HandlerUri:
    """Read a handler.  Raises ValueError saying what is wrong with it, for after `handler `."""
    text = text.strip()
    if not text:
        raise ValueError("is empty")
    scheme, separator, target = text.partition("://")
    if separator:
        return _with_scheme(scheme, target)
    module, separator, function = text.rpartition("::")
    if not separator:
        module = DEFAULT_MODULE
    if not is_name(module):
        raise ValueError(f"is {text!r}: {module!r} is not the name of a module")
    if not is_name(function):
        raise ValueError(f"is {text!r}: {function!r} is not the name of a function")
    return HandlerUri("local", text, module, function)


def _with_scheme(scheme: str, target: str) -> HandlerUri:
    kind = _SCHEMES.get(scheme)
    if kind is None:
        raise ValueError(f"has the scheme {scheme!r}, which is not implemented")
    if not target.strip():
        raise ValueError(f"is {scheme}:// with an empty target")
    return HandlerUri(kind, target.strip())
