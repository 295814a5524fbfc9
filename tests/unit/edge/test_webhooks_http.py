"""Webhooks over HTTP, into a log: who is believed, what is answered, what becomes of it."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import pytest_asyncio

from streams.core.record import Position
from streams.edge.ingest.http import IngestService
from streams.edge.ingest.webhooks.routes import WebhookRoutes
from streams.edge.ingest.webhooks.webhooks_api import HEADER_BYTES_MAX
from streams.edge.publisher import Publisher
from streams.settings import Settings
from streams.testing import binding
from tests.support.mock_cluster import mock_cluster, read
from tests.support.registry_records import CODEC, Registry
from tests.support.webhooks import signed, with_path

SECRET = b"It's a Secret"
BODY = json.dumps({"action": "opened", "issue": {"number": 7}}).encode()
BODY_BYTES_MAX = 2_000
REGISTRY = "triggers.registry"
JSON = {"Content-Type": "application/json"}


class Seen:
    """What metrics would be told."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, int]] = []
        self.refusals: list[tuple[str, str]] = []
        self.taken: list[str] = []

    def answered(self, status: int, events: int, seconds: float) -> None:
        assert seconds >= 0
        self.answers.append((status, events))

    def webhook_refused(self, provider: str, reason: str) -> None:
        self.refusals.append((provider, reason))

    def webhook_taken(self, provider: str, normalized_s: float, appended_s: float) -> None:
        assert 0 <= normalized_s <= appended_s
        self.taken.append(provider)


class Ingest:
    """A running service with a registry's log that the test writes."""

    def __init__(self, settings: Settings, publisher: Publisher, service: IngestService) -> None:
        self.settings = settings
        self.publisher = publisher
        self.service = service
        self.seen = Seen()
        self.log = Registry()
        self._written = 0

    async def write(self) -> None:
        """Append what the registry's log got new."""
        for record in self.log.records[self._written :]:
            assert record.value is not None
            kind = dict(record.headers)["kind"].decode()
            await self.publisher.append(
                REGISTRY, kind=kind, key=b"k", value=record.value, partition=0
            )
        self._written = len(self.log.records)

    async def apply(self, *bindings: Any) -> None:
        """Put bindings in force, broadcast."""
        revision = self.log.view().revision
        self.log.apply(*bindings, revision=revision)
        self.log.add("revision_broadcast", {"revision": revision + 1})
        await self.write()

    async def serves(self, client: httpx.AsyncClient, path: str, status: int) -> None:
        """Wait until an unsigned delivery is answered like this."""
        while (await post(client, path, BODY, {})).status_code != status:
            pass


async def post(
    client: httpx.AsyncClient, path: str, body: bytes, headers: Mapping[str, str | bytes]
) -> httpx.Response:
    sent: Any = {**JSON, **headers}
    return await client.post(f"/webhooks/{path}", content=body, headers=sent)


def github(body: bytes = BODY, secret: bytes = SECRET, delivery: str = "d1") -> dict[str, str]:
    return signed("github", body, secret, delivery=delivery)


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with mock_cluster() as address:
        yield address


@pytest_asyncio.fixture
async def start(bootstrap: str, tmp_path: Path) -> AsyncIterator[Callable[..., Any]]:
    started: list[Ingest] = []

    async def start_one(**changes: Any) -> Ingest:
        secrets = tmp_path / "secrets"
        secrets.mkdir(exist_ok=True)
        (secrets / "github.hook").write_bytes(SECRET)
        settings = Settings(
            bootstrap=bootstrap,
            http_port=0,
            http_max_body_bytes=BODY_BYTES_MAX,
            secrets_dir=secrets,
        )
        settings = replace(settings, **changes)
        publisher = Publisher(settings, name="test")
        await publisher.start()
        seen = Seen()
        service = IngestService(settings, publisher, CODEC, observer=seen)
        ingest = Ingest(settings, publisher, service)
        ingest.seen = seen
        await service.start()
        started.append(ingest)
        return ingest

    yield start_one
    for ingest in started:
        await ingest.service.stop()
        await ingest.publisher.stop()


@pytest_asyncio.fixture
async def ingest(start: Callable[..., Any]) -> Ingest:
    found: Ingest = await start()
    await found.apply(with_path(binding("a"), "/hooks/github"))
    return found


@pytest_asyncio.fixture
async def client(ingest: Ingest) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=ingest.service.url) as client:
        await ingest.serves(client, "hooks/github", 401)
        ingest.seen.refusals.clear()
        ingest.seen.answers.clear()
        yield client


def envelope(ingest: Ingest, position: str) -> tuple[bytes, dict[str, Any]]:
    """The key and value of one envelope."""
    at = Position.parse(position)
    record = read(ingest.settings, at.topic, at.partition, at.offset + 1)[-1]
    key, value = record.key(), record.value()
    assert isinstance(key, bytes)
    assert isinstance(value, bytes)
    return key, CODEC.decode(value)[1]


# ---------------------------------------------------------------------- accepted
async def test_a_signed_delivery_is_an_event_in_the_log_when_it_is_answered(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    sent = {**github(), "Authorization": "Basic c2VjcmV0", "traceparent": f"00-{'a' * 32}-b-01"}
    response = await post(client, "hooks/github", BODY, sent)
    assert response.status_code == 202
    key, value = envelope(ingest, response.json()["position"])
    assert key == b"github/hooks/github:d1"
    assert (value["webhook_path"], value["trigger_id"]) == ("hooks/github", None)
    event = value["event"]
    assert (event["id"], event["provider"]) == (response.json()["event_id"], "github")
    assert (event["kind"], event["dedupe_key"]) == ("issues.opened", "d1")
    assert event["provider_payload"].encode() == BODY
    assert (event["signature_state"], event["raw_body"]) == ("verified", None)
    assert event["headers"]["x-github-event"] == "issues"
    assert event["headers"]["authorization"] == "[redacted]"
    assert SECRET.decode() not in str(value)
    assert ingest.seen.answers == [(202, 1)]
    assert ingest.seen.taken == ["github"]
    assert ingest.seen.refusals == []


async def test_a_form_s_body_is_kept_beside_its_payload(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    form = urlencode({"payload": BODY.decode()}).encode()
    headers = {**github(form), "Content-Type": "application/x-www-form-urlencoded"}
    response = await post(client, "hooks/github", form, headers)
    assert response.status_code == 202
    _, value = envelope(ingest, response.json()["position"])
    assert value["event"]["provider_payload"].encode() == BODY
    assert value["event"]["raw_body"] == form


async def test_slack_s_challenge_is_answered_and_its_events_without_a_body(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    (ingest.settings.secrets_dir / "slack.app").write_bytes(b"slack-secret")
    await ingest.apply(
        with_path(binding("s", provider="slack"), "slack", "slack/app"),
    )
    await ingest.serves(client, "slack", 401)
    now_s = int(time.time())
    challenge = b'{"type": "url_verification", "challenge": "3eZb", "token": "t"}'
    headers = signed("slack", challenge, b"slack-secret", now_s=now_s)
    response = await post(client, "slack", challenge, headers)
    assert (response.status_code, response.text) == (200, "3eZb")
    body = b'{"type": "event_callback", "event_id": "Ev1", "event": {"type": "message"}}'
    headers = signed("slack", body, b"slack-secret", now_s=now_s)
    response = await post(client, "slack", body, headers)
    assert (response.status_code, response.content) == (200, b"")
    stale = signed("slack", body, b"slack-secret", now_s=now_s - 1_000)
    assert (await post(client, "slack", body, stale)).status_code == 401
    assert ingest.seen.answers[-3:] == [(200, 0), (200, 1), (401, 0)]
    assert ("slack", "timestamp_stale") in ingest.seen.refusals


# ---------------------------------------------------------------------- refused
async def test_whatever_is_wrong_with_a_signature_the_answer_is_the_same(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    headers: list[Mapping[str, str | bytes]] = [
        {},
        github(secret=b"other"),
        github(BODY + b" "),
        {**github(), "X-Hub-Signature-256": "sha1=00"},
        {**github(), "X-Hub-Signature-256": b"sha256=\xe4"},
    ]
    answers = [await post(client, "hooks/github", BODY, each) for each in headers]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert answers[0].json()["error"] == "the delivery is not signed with a secret of this path"
    assert {reason for _, reason in ingest.seen.refusals} == {
        "signature_missing",
        "signature_mismatch",
        "signature_malformed",
    }


async def test_a_flood_of_forgeries_is_no_flood_of_log_lines(
    client: httpx.AsyncClient, ingest: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "harn.ingest")
    for _ in range(20):
        await post(client, "hooks/github", BODY, github(secret=b"other"))
    lines = [each.__dict__ for each in caplog.records if each.message == "webhook_refused"]
    assert [(line["path"], line["reason"]) for line in lines] == [
        ("hooks/github", "signature_mismatch")
    ]
    assert len(ingest.seen.refusals) == 20, "all of them are counted"


async def test_a_body_is_not_read_before_its_signature_fits(client: httpx.AsyncClient) -> None:
    assert (await post(client, "hooks/github", b"{", github())).status_code == 401
    refused = await post(client, "hooks/github", b"{", github(b"{"))
    assert refused.status_code == 400
    assert refused.json()["problems"][0].startswith("the body is not JSON")


async def test_a_signed_delivery_that_can_be_no_event_is_refused_by_name(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    sent = {**github(b"{}", delivery="d" * 1_001), "X-GitHub-Event": "x" * 201}
    refused = await post(client, "hooks/github", b"{}", sent)
    assert refused.status_code == 400
    assert {problem.split(":")[0] for problem in refused.json()["problems"]} == {
        "kind",
        "dedupe_key",
    }
    assert ingest.seen.refusals == [("github", "malformed")]


@pytest.mark.parametrize("path", ["hooks", "hooks/github/x", "hooks/other", "hooks%2Fother"])
async def test_a_path_that_no_trigger_has_is_404(
    client: httpx.AsyncClient, ingest: Ingest, path: str
) -> None:
    response = await post(client, path, BODY, github())
    assert response.status_code == 404
    assert response.json()["error"].startswith("no trigger takes webhooks at 'hooks")
    assert ingest.seen.refusals == [("unknown", "unknown_path")]


async def test_other_methods_are_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get("/webhooks/hooks/github")).status_code == 405
    assert (await client.post("/webhooks/")).status_code == 404


async def test_a_type_that_its_provider_never_sends_is_refused(client: httpx.AsyncClient) -> None:
    headers = {**github(), "Content-Type": "text/plain"}
    response = await post(client, "hooks/github", BODY, headers)
    assert response.status_code == 415
    assert response.json()["error"].startswith("Content-Type is text/plain, expected application/")


async def test_a_body_over_the_limit_is_refused(client: httpx.AsyncClient) -> None:
    fits = b'{"x": "' + b"x" * (BODY_BYTES_MAX - 9) + b'"}'
    assert len(fits) == BODY_BYTES_MAX
    assert (await post(client, "hooks/github", fits, github(fits))).status_code == 202
    large = fits + b" "
    assert (await post(client, "hooks/github", large, github(large))).status_code == 413


async def test_a_form_that_does_not_fit_twice_is_refused(client: httpx.AsyncClient) -> None:
    form = b"payload=" + b"{}".ljust(BODY_BYTES_MAX // 2, b"+")
    headers = {**github(form), "Content-Type": "application/x-www-form-urlencoded"}
    refused = await post(client, "hooks/github", form, headers)
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("payload and body have")


async def test_headers_over_the_limit_are_refused(client: httpx.AsyncClient) -> None:
    names = ("X-A", "X-B", "X-C")
    part = "x" * ((HEADER_BYTES_MAX - 2_000) // len(names))
    fits = {**github(), **dict.fromkeys(names, part)}
    assert (await post(client, "hooks/github", BODY, fits)).status_code == 202
    response = await post(client, "hooks/github", BODY, {**fits, "X-D": "x" * 2_000})
    assert response.status_code == 431


async def test_a_namespace_s_own_limits_hold(client: httpx.AsyncClient, ingest: Ingest) -> None:
    allowed = {"allowed_origins": ["https://a.example"], "max_body_bytes": len(BODY)}
    await ingest.apply(with_path(binding("a"), "limited", **allowed))
    await ingest.serves(client, "limited", 401)
    assert (await post(client, "limited", BODY, github())).status_code == 202
    large = BODY + b" "
    assert (await post(client, "limited", large, github(large))).status_code == 413
    for origin, status in (("https://A.example", 202), ("https://b.example", 403)):
        response = await post(client, "limited", BODY, {**github(), "Origin": origin})
        assert response.status_code == status
        assert response.headers.get("Access-Control-Allow-Origin") == (
            origin if status == 202 else None
        )


async def test_a_page_of_an_allowed_origin_gets_its_preflight_answered(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    await ingest.apply(with_path(binding("a"), "p", allowed_origins=["https://a.example"]))
    await ingest.serves(client, "p", 401)
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "content-type"
    response = await client.options("/webhooks/p", headers=asked)
    assert response.status_code == 204
    assert response.headers["Access-Control-Allow-Origin"] == "https://a.example"
    assert response.headers["Access-Control-Allow-Headers"] == "content-type"
    other = await client.options("/webhooks/p", headers={**asked, "Origin": "https://b.example"})
    assert other.status_code == 403
    assert (await client.options("/webhooks/p")).status_code == 405
    assert (await client.options("/v1/events", headers=asked)).status_code == 403


async def test_web_pages_may_not_send_events_unless_their_origin_is_named(
    start: Callable[..., Any],
) -> None:
    named = await start(http_allowed_origins="https://a.example")
    event = {"provider": "github", "kind": "push"}
    async with httpx.AsyncClient(base_url=named.service.url) as client:
        for origin, status in (("https://a.example", 202), ("null", 403)):
            response = await client.post("/v1/events", json=event, headers={"Origin": origin})
            assert response.status_code == status
        asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
        assert (await client.options("/v1/events", headers=asked)).status_code == 204


@pytest.mark.parametrize("origin", ["", "null", "https://a.example"])
async def test_without_a_setting_no_web_page_may_send_events(
    client: httpx.AsyncClient, origin: str
) -> None:
    event = {"provider": "github", "kind": "push"}
    response = await client.post("/v1/events", json=event, headers={"Origin": origin})
    assert response.status_code == 403


# ---------------------------------------------------------------------- what is in force
async def test_before_the_registry_is_read_no_path_is_unknown(
    start: Callable[..., Any],
) -> None:
    ingest = await start()
    async with httpx.AsyncClient(base_url=ingest.service.url) as client:
        response = await post(client, "anything", BODY, github())
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")


async def test_paths_come_and_go_with_manifests_once_those_are_broadcast(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    ingest.log.apply(with_path(binding("b"), "new"), revision=1)
    await ingest.write()
    assert (await post(client, "new", BODY, github())).status_code == 404
    ingest.log.add("revision_broadcast", {"revision": 2})
    await ingest.write()
    await ingest.serves(client, "new", 401)
    assert (await post(client, "new", BODY, github())).status_code == 202
    assert (await post(client, "hooks/github", BODY, github())).status_code == 404


async def test_a_secret_that_is_missing_is_told_to_the_operator_and_nobody_else(
    client: httpx.AsyncClient, ingest: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    await ingest.apply(with_path(binding("a"), "p", "github/gone"))
    await ingest.serves(client, "p", 503)
    response = await post(client, "p", BODY, github())
    assert response.headers["Retry-After"] == "1"
    assert "gone" not in response.text
    [line] = [each for each in caplog.records if each.message == "webhook_secret_missing"]
    assert "github.gone cannot be read" in line.__dict__["reason"]
    assert ("github", "secret_missing") in ingest.seen.refusals


async def test_a_secret_may_change_while_it_is_served(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    file = ingest.settings.secrets_dir / "github.hook"
    file.write_bytes(b"new\n" + SECRET)
    await ingest.apply(with_path(binding("a", note="again"), "hooks/github"))

    async def taken(secret: bytes) -> bool:
        answer = await post(client, "hooks/github", BODY, github(secret=secret))
        return answer.status_code == 202

    while not await taken(b"new"):
        pass
    assert await taken(SECRET)


async def test_without_an_ack_a_delivery_is_to_be_sent_again(
    client: httpx.AsyncClient, ingest: Ingest
) -> None:
    await ingest.publisher.stop()
    response = await post(client, "hooks/github", BODY, github())
    assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
    assert set(response.json()) == {"event_id", "error"}


async def test_a_follower_that_cannot_go_on_fails_its_service(
    bootstrap: str, tmp_path: Path
) -> None:
    settings = Settings(bootstrap=bootstrap, http_port=0, secrets_dir=tmp_path)
    publisher = Publisher(settings, name="test")
    await publisher.start()
    value = CODEC.encode("revision_broadcast", {"revision": 0})
    await publisher.append(REGISTRY, kind="revision_broadcast", key=b"k", value=value, partition=0)
    service = IngestService(settings, publisher, CODEC)
    broken: Any = None
    routes = WebhookRoutes(settings, broken, service._fail)
    routes.start()
    with pytest.raises(AttributeError):
        await asyncio.wait_for(service.failed, 30)
    await routes.stop()
    await publisher.stop()
