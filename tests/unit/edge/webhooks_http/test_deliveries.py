"""Webhooks over HTTP, into a log: who is believed, what is answered, what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from streams.edge.ingest.webhooks.webhooks_api import HEADER_BYTES_MAX
from streams.testing import binding
from tests.support.webhook_edge import (
    BODY,
    BODY_BYTES_MAX,
    SECRET,
    Ingest,
    envelope,
    github,
    post,
)
from tests.support.webhooks import signed, with_path


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
    async with httpx.AsyncClient(base_url=named.service.url, timeout=60) as client:
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
