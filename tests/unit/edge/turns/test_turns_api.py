"""Goals, sessions and tasks over HTTP, on a database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio
from aiohttp import web

from streams.edge.ingest.answer import Door
from streams.edge.ingest.origins import Origins
from streams.edge.turns.enqueuer import Enqueuer
from streams.edge.turns.sql_ledger import SqlLedger
from streams.edge.turns.sql_turns import SqlTurns
from streams.edge.turns.turn_store import WORKER_TTL_MS, FleetWorker, Status
from streams.edge.turns.turns_api import TurnsApi
from streams.observe.listener import Listener
from tests.support.sql_turns import Place, sqlite_place

GOAL = {"objective": "all tests pass", "validation_cmd": "make test"}
BODY_BYTES_MAX = 2_000


@pytest.fixture
def place(tmp_path: Path) -> Any:
    with sqlite_place(tmp_path) as found:
        yield found


@pytest.fixture
def turns(place: Place) -> SqlTurns:
    return place.open()


@pytest_asyncio.fixture
async def client(turns: SqlTurns) -> AsyncIterator[httpx.AsyncClient]:
    ledger = SqlLedger(turns)
    api = TurnsApi(
        ledger,
        Enqueuer(ledger),
        Door(in_flight_max=8),
        Origins(["https://desk.example"]),
        body_bytes_max=BODY_BYTES_MAX,
    )
    app = web.Application()
    app.add_routes(api.routes())
    listener = Listener(app, "127.0.0.1", 0, connections_max=16, drain_s=1)
    await listener.start()
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{listener.port}", timeout=60
    ) as client:
        yield client
    await listener.stop()


def break_queue(turns: SqlTurns) -> None:
    turns.database.run(lambda transaction: transaction.change("DROP TABLE agent_dispatch_queue"))


async def test_8_12_a_goal_is_answered_with_its_handle(
    client: httpx.AsyncClient, turns: SqlTurns
) -> None:
    response = await client.post("/api/goals", json=GOAL)
    assert response.status_code == 202
    created = response.json()
    assert created["status"] == "success"
    assert created["dispatch"]["dispatch"] == "queued"
    assert turns.queue.get_queue_size() == 1
    goal = (await client.get(f"/api/goals/{created['goal_id']}")).json()
    assert (goal["status"], goal["owner_host"]) == ("pending", "")
    assert goal["objective"] == GOAL["objective"]
    assert goal.pop("iterations") == []
    assert (await client.get("/api/goals")).json()["goals"] == [goal]


async def test_8_13_who_cannot_be_served_is_told_so_and_the_goal_has_failed(
    client: httpx.AsyncClient, turns: SqlTurns
) -> None:
    break_queue(turns)
    response = await client.post("/api/goals", json=GOAL)
    assert response.status_code == 503
    assert response.headers["Retry-After"] == "1"
    assert "unavailable" in response.json()["error"]
    (goal,) = (await client.get("/api/goals", params={"status": "failed"})).json()["goals"]
    assert goal["error"].startswith("not enqueued: ")


async def test_8_14_a_task_is_dispatched_and_its_status_polled(client: httpx.AsyncClient) -> None:
    asked = {"action": "dispatch", "description": "look after it", "agent_name": "planner"}
    response = await client.post("/api/graph/orchestrate", json=asked)
    assert response.status_code == 202
    handle = response.json()
    assert handle["kind"] == "orchestrator_task"
    told = (await client.get(handle["status_url"])).json()
    assert (told["status"], told["description"]) == ("pending", "look after it")
    assert told["agent_name"] == "planner"
    assert "result" not in told
    polled = {"action": "status", "job_id": handle["job_id"]}
    assert (await client.post("/api/graph/orchestrate", json=polled)).json() == told


@pytest.mark.parametrize(
    "path", ["/api/graph/orchestrate/job/none", "/api/goals/none", "/api/goals/dispatch-none"]
)
async def test_what_is_not_there_is_not_found(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert response.status_code == 404
    assert response.json()["status"] == "not_found"


@pytest.mark.parametrize("wish", ["pause", "resume", "kill"])
async def test_nothing_is_wished_of_a_session_that_is_not_there(
    client: httpx.AsyncClient, wish: str
) -> None:
    assert (await client.post(f"/api/sessions/none/{wish}")).status_code == 404


async def test_a_session_is_paused_resumed_and_killed(
    client: httpx.AsyncClient, turns: SqlTurns
) -> None:
    await client.post("/api/goals", json={**GOAL, "session_id": "s1"})

    def wanted() -> tuple[bool, bool]:
        session = turns.store.read_session("s1")
        assert session is not None
        return session.pause_requested, session.kill_requested

    assert (await client.post("/api/sessions/s1/pause")).status_code == 202
    assert wanted() == (True, False)
    resumed = await client.post("/api/sessions/s1/resume")
    assert resumed.json()["dispatch"] == []
    assert wanted() == (False, False)
    assert (await client.post("/api/sessions/s1/kill")).status_code == 202
    assert wanted() == (False, True)
    assert (await client.post("/api/sessions/s1/resume")).status_code == 409
    assert (await client.post("/api/goals", json={**GOAL, "session_id": "s1"})).status_code == 409


@pytest.mark.parametrize(
    "session", ["org/repo#1", "a b", "...", "../x", "%", "a%2Fb", "x\u00a0y", "a\u3000b", "\u00e9?"]
)
async def test_whoever_has_a_session_of_any_name_can_end_it(
    client: httpx.AsyncClient, turns: SqlTurns, session: str
) -> None:
    assert (await client.post("/api/goals", json={**GOAL, "session_id": session})).is_success
    assert (await client.post(f"/api/sessions/{quote(session, safe='')}/kill")).status_code == 202
    found = turns.store.read_session(session)
    assert found is not None
    assert found.kill_requested


@pytest.mark.parametrize("name", ["a%00b", "a%0Ab", "%20", "a" * 257])
async def test_what_no_id_can_be_is_refused(client: httpx.AsyncClient, name: str) -> None:
    for path in (f"/api/goals/{name}", f"/api/graph/orchestrate/job/{name}"):
        response = await client.get(path)
        assert response.status_code == 400
        (problem,) = response.json()["problems"]
        assert problem.startswith("the id is ")


async def test_a_task_that_will_not_wait_is_refused_while_its_session_is_busy(
    client: httpx.AsyncClient,
) -> None:
    asked = {"action": "dispatch", "description": "look after it", "session_id": "s1"}
    first = await client.post("/api/graph/orchestrate", json={**asked, "when_busy": "reject"})
    assert first.status_code == 202

    second = await client.post("/api/graph/orchestrate", json={**asked, "when_busy": "reject"})

    assert second.status_code == 409
    [problem] = second.json()["problems"]
    assert problem == f"rejected: turn {first.json()['job_id']} of its session had not ended"
    third = await client.post("/api/graph/orchestrate", json={**asked, "when_busy": "at once"})
    assert third.status_code == 400
    [problem] = third.json()["problems"]
    assert problem == 'when_busy is "at once", expected one of enqueue, reject, interrupt'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/goals", b"{"),
        ("/api/goals", b"[]"),
        ("/api/goals", b'{"objective": ""}'),
        ("/api/graph/orchestrate", b"{}"),
        ("/api/graph/orchestrate", b'{"action": "explode"}'),
        ("/api/graph/orchestrate", b'{"action": "dispatch"}'),
        ("/api/graph/orchestrate", b'{"action": "status"}'),
        ("/api/graph/orchestrate", b'{"action": "status", "job_id": "j", "x": 1}'),
    ],
)
async def test_what_is_unusable_is_refused_with_the_reasons(
    client: httpx.AsyncClient, turns: SqlTurns, path: str, body: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    response = await client.post(path, content=body, headers=headers)
    assert response.status_code == 400
    assert response.json()["problems"]
    assert turns.store.records() == []


async def test_a_body_is_bounded(client: httpx.AsyncClient) -> None:
    room = BODY_BYTES_MAX - len(b'{"objective": ""}')
    headers = {"Content-Type": "application/json"}
    for size, status in ((room, 202), (room + 1, 413)):
        body = b'{"objective": "%s"}' % (b"o" * size)
        response = await client.post("/api/goals", content=body, headers=headers)
        assert response.status_code == status


async def test_a_body_says_that_it_is_json(client: httpx.AsyncClient) -> None:
    assert (await client.post("/api/goals", content=b"{}")).status_code == 415


async def test_web_pages_of_other_origins_ask_nothing(
    client: httpx.AsyncClient, turns: SqlTurns
) -> None:
    await client.post("/api/goals", json={**GOAL, "session_id": "s1"})
    foreign = {"Origin": "https://evil.example"}
    assert (await client.post("/api/sessions/s1/kill", headers=foreign)).status_code == 403
    session = turns.store.read_session("s1")
    assert session is not None
    assert not session.kill_requested
    known = {"Origin": "https://desk.example"}
    assert (await client.post("/api/sessions/s1/pause", headers=known)).status_code == 202


async def test_8_25_8_26_the_fleet_is_shown_with_the_workers_that_live(
    client: httpx.AsyncClient, turns: SqlTurns, place: Place
) -> None:
    asked = {**GOAL, "session_id": "sess-9", "domain": "ops"}
    await client.post("/api/goals", json=asked)
    turns.store.beat(_worker("w-old", "hostA"))
    place.pass_time(WORKER_TTL_MS + 5_000)
    turns.store.beat(_worker("w-new", "hostB", "sess-9"))
    told = (await client.get("/api/fleet/topology")).json()
    assert told["totals"] == {"domains": 1, "sessions": 1, "dispatch_workers": 1}
    (worker,) = told["dispatch_workers"]
    assert (worker["host"], worker["active_sessions"]) == ("hostB", ["sess-9"])
    (domain,) = told["domains"]
    assert domain["domain"] == "ops"
    assert [session["id"] for session in domain["sessions"]] == ["sess-9"]
    assert [goal["status"] for goal in told["goals"]] == [Status.PENDING]


async def test_listings_are_paged(client: httpx.AsyncClient) -> None:
    for number in range(3):
        await client.post("/api/goals", json={**GOAL, "session_id": f"s{number}"})
    first = (await client.get("/api/goals", params={"limit": 2})).json()
    rest = (await client.get("/api/goals", params={"limit": 2, "offset": 2})).json()
    assert (first["page"]["returned"], rest["page"]["returned"]) == (2, 1)
    ids = {goal["goal_id"] for goal in (*first["goals"], *rest["goals"])}
    assert len(ids) == 3
    told = (await client.get("/api/fleet/topology", params={"status": "idle"})).json()
    assert (told["page"]["returned"], told["goals"]) == (0, [])


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "limit=x", "offset=-1", "status=odd", "page=2"]
)
async def test_a_page_that_cannot_be_is_refused(client: httpx.AsyncClient, query: str) -> None:
    for path in ("/api/goals", "/api/fleet/topology"):
        response = await client.get(f"{path}?{query}")
        assert response.status_code == 400
        (problem,) = response.json()["problems"]
        assert "expected" in problem


def _worker(worker_id: str, host: str, *sessions: str) -> FleetWorker:
    return FleetWorker(
        worker_id=worker_id,
        host=host,
        capacity=1,
        active_sessions=sessions,
        queue_backend="sqlite",
    )
