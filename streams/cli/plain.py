"""Text that others wrote, as it may stand on a screen.

Ids, errors, headers and payloads come from senders and handlers.  A control character among them
could move the cursor, change colours, or hide the line before: it is shown by its escape.
"""

from __future__ import annotations

from rich import markup

__all__ = ["escape", "plain"]


def plain(text: str, /) -> str:
    """Return a text of one line whose characters can all be seen."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def escape(text: str, /) -> str:
    """Return the same for a place where rich reads markup, of which there is none in it."""
    return markup.escape(plain(text))
