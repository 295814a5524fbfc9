"""Web pages that send requests: a browser says where its page is from, and few may ask anything.

Who is no browser sends no `Origin` and is not concerned.  A page of an allowed origin also gets its
preflight answered.

Source: SEMANTICS 1.4 `allowed_origins`; Fetch standard, "CORS protocol".
"""

from __future__ import annotations

from collections.abc import Collection

from aiohttp import web

from streams.edge.ingest.answer import Refused

__all__ = ["Origins"]

_ANY = "*"
_ASKED_HEADERS_CHARS_MAX = 1_000
_MAX_AGE_S = "600"


class Origins:
    """Origins of which pages may send requests, in lower case; `*` means all."""

    def __init__(self, allowed: Collection[str]) -> None:
        self._allowed = frozenset(allowed) - {""}

    def check(self, request: web.Request) -> None:
        """Raise Refused (403) for a page of an origin that is not allowed."""
        origin = request.headers.get("Origin")
        if origin is not None and not self._allows(origin):
            raise Refused(403, ["web pages of this origin may not send requests here"])

    def mark(self, request: web.Request, response: web.Response) -> None:
        """Let a page of an allowed origin read its answer."""
        origin = request.headers.get("Origin")
        if origin is not None and self._allows(origin):
            response.headers["Access-Control-Allow-Origin"] = origin
            response.headers["Vary"] = "Origin"

    def preflight(self, request: web.Request) -> web.Response:
        """Answer what a browser asks before a request.  Raises Refused."""
        if (
            "Origin" not in request.headers
            or "Access-Control-Request-Method" not in request.headers
        ):
            raise Refused(405, ["expected POST"], Allow="POST")
        self.check(request)
        response = web.Response(status=204)
        self.mark(request, response)
        response.headers["Access-Control-Allow-Methods"] = "POST"
        response.headers["Access-Control-Max-Age"] = _MAX_AGE_S
        asked = request.headers.get("Access-Control-Request-Headers", "")
        if asked.isascii() and asked.isprintable() and len(asked) <= _ASKED_HEADERS_CHARS_MAX:
            response.headers["Access-Control-Allow-Headers"] = asked
        return response

    def _allows(self, origin: str) -> bool:
        return _ANY in self._allowed or origin.lower() in self._allowed
