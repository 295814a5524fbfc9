"""Goals, sessions and tasks over HTTP.

| route | answers |
|---|---|
| `POST /api/goals` | 202 and the handle, once record and turn are durable |
| `GET /api/goals`, `GET /api/goals/{id}` | goals, the last changed first; one goal, or 404 |
| `POST /api/sessions/{id}/pause`, `.../resume`, `.../kill` | 202 once it is durable, or 404 |
| `POST /api/graph/orchestrate` | `action` is `dispatch` (202 and the handle) or `status` |
| `GET /api/graph/orchestrate/job/{id}` | the task, or 404 with `status` `not_found` |
| `GET /api/fleet/topology` | sessions by domain, goals, and the workers that live |

400 says all that is wrong with a request, 409 that its session was killed, or is busy and the turn
was not to wait (where that is known at once: on Kafka the owner of the session decides, and the
record says so), 413 that its body is too large.  503 says that what carries turns is away: a goal
or task of the request has failed then.
Nobody is authenticated here.

Source: SEMANTICS 8.1, 8.2 and 8.9; seed queue-driven-agent-dispatch, "Fleet visibility".
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web

from streams.core.turn.envelope_fields import fits, shown
from streams.edge.ingest.answer import (
    RETRY_AFTER_S,
    Answered,
    Door,
    Refused,
    json_response,
    read_body,
)
from streams.edge.ingest.media_type import media_type
from streams.edge.ingest.origins import Origins
from streams.edge.turns.enqueuer import Enqueuer, SessionBusy, SessionKilled, TurnRefused
from streams.edge.turns.turn_ledger import TurnLedger
from streams.edge.turns.turn_store import LISTED_MAX, Status
from streams.edge.turns.turns_json import goal_json, job_json, topology_json
from streams.errors import TaskQueueUnavailable

__all__ = ["TurnsApi"]

_LISTED = 200
_OFFSET_MAX = 2**31 - 1
_ACTIONS = ("dispatch", "status")
_SESSION_STATUSES = frozenset(
    {"queued", "running", "idle", "paused", "completed", "failed", "cancelled"}
)
_GOAL_STATUSES = frozenset(status.value for status in Status if status is not Status.UNKNOWN)


class TurnsApi:
    """The routes above, for a listener that has others as well.

    Args:    door: so many requests are answered at once.
             origins: of the web pages that may ask; whoever is no page may.
             body_bytes_max: of one request.
    """

    def __init__(
        self,
        ledger: TurnLedger,
        enqueuer: Enqueuer,
        door: Door,
        origins: Origins,
        *,
        body_bytes_max: int,
    ) -> None:
        self._ledger = ledger
        self._origins = origins
        self._enqueuer = enqueuer
        self._door = door
        self._body_bytes_max = body_bytes_max

    def routes(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.post("/api/goals", self._answered(self._create_goal)),
            web.get("/api/goals", self._answered(self._goals)),
            web.get("/api/goals/{id}", self._answered(self._goal)),
            web.post("/api/sessions/{id}/{wish:pause|resume|kill}", self._answered(self._wish)),
            web.post("/api/graph/orchestrate", self._answered(self._orchestrate)),
            web.get("/api/graph/orchestrate/job/{id}", self._answered(self._job)),
            web.get("/api/fleet/topology", self._answered(self._topology)),
        ]

    def _answered(
        self, respond: Callable[[web.Request], Awaitable[web.Response]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            async def respond_or_refuse() -> Answered:
                self._origins.check(request)
                try:
                    return Answered(await respond(request))
                except (SessionKilled, SessionBusy) as refused:
                    raise Refused(409, refused.problems) from refused
                except TurnRefused as refused:
                    raise Refused(400, refused.problems) from refused
                except TaskQueueUnavailable as error:
                    raise Refused(503, [str(error)], Retry_After=RETRY_AFTER_S) from error

            return await self._door.answer(respond_or_refuse)

        return answer

    async def _create_goal(self, request: web.Request) -> web.Response:
        return json_response(202, await self._enqueuer.create_goal(await self._body(request)))

    async def _goals(self, request: web.Request) -> web.Response:
        limit, offset, status = _page(request, _GOAL_STATUSES)
        found = await self._ledger.records(
            kind="goal_loop",
            status=None if status is None else Status(status),
            limit=limit,
            offset=offset,
        )
        page = {"limit": limit, "offset": offset, "returned": len(found)}
        return json_response(200, {"goals": [goal_json(goal) for goal in found], "page": page})

    async def _goal(self, request: web.Request) -> web.Response:
        goal_id = _id(request)
        found = await self._ledger.record(goal_id, "goal_loop")
        if found is None:
            return _not_found("goal", goal_id)
        return json_response(200, goal_json(found, whole=True))

    async def _wish(self, request: web.Request) -> web.Response:
        session_id, wish = _id(request), request.match_info["wish"]
        answer: dict[str, Any] = {"status": "requested", "session_id": session_id, "wish": wish}
        if wish == "resume":
            handles = await self._enqueuer.resume(session_id)
            if handles is None:
                return _not_found("session", session_id)
            return json_response(202, {**answer, "dispatch": handles})
        ask = self._enqueuer.pause if wish == "pause" else self._enqueuer.kill
        if not await ask(session_id):
            return _not_found("session", session_id)
        return json_response(202, answer)

    async def _orchestrate(self, request: web.Request) -> web.Response:
        body = await self._body(request)
        action = body.pop("action", None)
        if action == "dispatch":
            return json_response(202, await self._enqueuer.dispatch(body))
        if action == "status":
            job_id = body.pop("job_id", None)
            if not fits("job_id", job_id) or body:
                raise TurnRefused("action status takes job_id, the id of a task, and nothing else")
            return await self._told(job_id)
        raise TurnRefused(f"action is missing or unknown, expected one of {', '.join(_ACTIONS)}")

    async def _job(self, request: web.Request) -> web.Response:
        return await self._told(_id(request))

    async def _told(self, job_id: str) -> web.Response:
        found = await self._ledger.record(job_id, "orchestrator_task")
        return _not_found("job", job_id) if found is None else json_response(200, job_json(found))

    async def _topology(self, request: web.Request) -> web.Response:
        limit, offset, status = _page(request, _SESSION_STATUSES | _GOAL_STATUSES)
        of_session = status is None or status in _SESSION_STATUSES
        of_goal = status is None or status in _GOAL_STATUSES
        sessions = (
            await self._ledger.sessions(status=status, limit=limit, offset=offset)
            if of_session
            else ()
        )
        goals = (
            await self._ledger.records(
                kind="goal_loop",
                status=None if status is None else Status(status),
                limit=limit,
                offset=offset,
            )
            if of_goal
            else ()
        )
        workers = await self._ledger.workers()
        told = topology_json(sessions, goals, workers, limit=limit, offset=offset)
        return json_response(200, told)

    async def _body(self, request: web.Request) -> dict[str, Any]:
        """Return a request's JSON object.  Raises Refused: 400, 408, 413 or 415."""
        if media_type(request.headers).name != "application/json":
            raise Refused(415, ["Content-Type is not application/json"])
        body = await read_body(request, self._body_bytes_max)
        try:
            found: object = json.loads(body.decode())
        except (ValueError, RecursionError) as error:
            raise Refused(400, [f"the body is no JSON: {error}"]) from error
        if not isinstance(found, dict):
            raise Refused(400, ["the body is not an object, expected one JSON object"])
        return cast("dict[str, Any]", found)


def _not_found(what: str, key: str) -> web.Response:
    error = f"there is no {what} {key}"
    return json_response(404, {"status": "not_found", "error": error})


def _id(request: web.Request) -> str:
    """Return the id in a path, which is any that a turn may have.  Raises Refused."""
    found = request.match_info["id"]
    if not fits("session_id", found):
        expected = "a text of 1 to 256 characters, not blank, without control characters"
        raise Refused(400, [f"the id is {shown(found)}, expected {expected}"])
    return found


def _page(request: web.Request, statuses: frozenset[str]) -> tuple[int, int, str | None]:
    """Return limit, offset and status of a listing.  Raises Refused with every problem."""
    known = ("limit", "offset", "status")
    problems = [
        f"{name!r} is no parameter, expected one of {', '.join(known)}"
        for name in request.query
        if name not in known
    ]
    limit = _number(request, "limit", _LISTED, 1, LISTED_MAX, problems)
    offset = _number(request, "offset", 0, 0, _OFFSET_MAX, problems)
    status = request.query.get("status") or None
    if status is not None and status not in statuses:
        problems.append(f"status is {status!r}, expected one of {', '.join(sorted(statuses))}")
    if problems:
        raise Refused(400, problems)
    return limit, offset, status


def _number(
    request: web.Request, name: str, default: int, low: int, high: int, problems: list[str]
) -> int:
    text = request.query.get(name)
    if text is None:
        return default
    if text.isascii() and text.isdigit() and len(text) <= len(str(high)):
        value = int(text)
        if low <= value <= high:
            return value
    problems.append(f"{name} is {text[:60]!r}, expected a whole number from {low} to {high}")
    return default
