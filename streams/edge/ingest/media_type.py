"""What a request says its body is, read in a time that its sender cannot choose.

The mail parser behind aiohttp's `content_type` takes half a minute for 3 KB of empty parameters, in
the event loop and before anybody has shown a signature.

Source: RFC 9110, "Media Type".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from streams.edge.ingest.answer import Refused

__all__ = ["CHARS_MAX", "MediaType", "media_type"]

CHARS_MAX = 256
"""Of a Content-Type, with its parameters."""

_UNKNOWN = "application/octet-stream"
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - a word of HTTP's grammar
_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}")


class MediaType(NamedTuple):
    """`name` in lower case, as `application/json`; `charset` as it was said, or None."""

    name: str
    charset: str | None


def media_type(headers: Mapping[str, str]) -> MediaType:
    """Return what the Content-Type says; what cannot be read is an octet stream.

    Raises: Refused (415) for one of more than CHARS_MAX characters.
    """
    text = headers.get("Content-Type", "")
    if len(text) > CHARS_MAX:
        raise Refused(415, [f"Content-Type has more than {CHARS_MAX} characters"])
    name, *parameters = (part.strip() for part in text.split(";"))
    charset = None
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.lower() == "charset":
            charset = value.strip('"').encode("ascii", "replace").decode()
            break
    return MediaType(name.lower() if _TYPE.fullmatch(name) else _UNKNOWN, charset)
