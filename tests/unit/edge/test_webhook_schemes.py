"""Each provider's scheme, against what its own documentation publishes and against tampering."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from streams.core.provider_catalog import SIGNED_WEBHOOKS
from streams.edge.ingest.body import MalformedBody
from streams.edge.ingest.webhooks.delivery import (
    FORM,
    JSON,
    Arrived,
    Challenge,
    Delivered,
    form_fields,
    time_of,
)
from streams.edge.ingest.webhooks.schemes import SCHEMES, SIGNING_SECRET
from streams.edge.ingest.webhooks.signing import SIGNATURES_MAX, TOLERANCE_S, Misfit
from tests.support.webhooks import signed

NOW_S = 1_700_000_000
SECRETS = {name: f"{name}-secret".encode() for name in SCHEMES}
SECRETS["webhook"] = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODIES: dict[str, dict[str, Any]] = {
    "github": {"action": "opened", "issue": {"number": 7}},
    "gitlab": {"object_kind": "merge_request", "object_attributes": {"action": "open"}},
    "linear": {"type": "Issue", "action": "create", "webhookTimestamp": NOW_S * 1_000},
    "slack": {"type": "event_callback", "event_id": "Ev1", "event": {"type": "app_mention"}},
    "stripe": {"id": "evt_1", "type": "charge.failed", "created": NOW_S},
    "webhook": {"type": "user.created", "timestamp": "2023-11-14T22:13:20Z"},
}
TIMED = sorted(set(SCHEMES) - {"github", "gitlab"})
PROVIDERS = sorted(SCHEMES)


def arrived(
    headers: dict[str, str], body: bytes | dict[str, Any], content_type: str = JSON
) -> Arrived:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Arrived(CIMultiDict(headers), content_type, text)


def sent(provider: str, *, secret: bytes | None = None, now_s: int = NOW_S) -> Arrived:
    """A delivery of a provider, signed with its secret or another."""
    body = json.dumps(BODIES[provider]).encode()
    return arrived(signed(provider, body, secret or SECRETS[provider], now_s=now_s), body)


def misfit(provider: str, found: Arrived, *secrets: bytes, now_s: int = NOW_S) -> Misfit | None:
    scheme = SCHEMES[provider]
    keys = [scheme.key_of(secret) for secret in secrets or (SECRETS[provider],)]
    return scheme.misfit(found, keys, now_s)


def read(provider: str, found: Arrived) -> Delivered:
    delivered = SCHEMES[provider].read(found)
    assert isinstance(delivered, Delivered)
    return delivered


def test_every_provider_of_the_catalog_has_a_scheme_and_signs_with_what_it_names() -> None:
    assert set(SCHEMES) == set(SIGNED_WEBHOOKS)
    assert all(SIGNING_SECRET in names for names in SIGNED_WEBHOOKS.values())


# ---------------------------------------------------------------------- published examples
def test_github_s_example_fits() -> None:
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    found = arrived({"X-Hub-Signature-256": signature}, b"Hello, World!")
    assert misfit("github", found, b"It's a Secret to Everybody") is None


def test_slack_s_example_fits() -> None:
    body = (
        "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow"
        "&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner"
        "&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
        "%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN"
        "&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "X-Slack-Request-Timestamp": "1531420618",
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }
    found = arrived(headers, body.encode(), FORM)
    secret = b"8f742231b10e8888abcd99yyyzzz85a5"
    assert misfit("slack", found, secret, now_s=1_531_420_618) is None
    delivered = read("slack", found)
    assert (delivered.kind, delivered.dedupe_key) == (
        "slash_command",
        "398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c",
    )
    assert json.loads(delivered.payload)["command"] == "/webhook-collect"
    assert b"xyzz0WbapA4vBCDEFasx0q6G" not in delivered.payload


def test_standard_webhooks_example_fits() -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    found = arrived(headers, b'{"test": 2432232314}')
    assert misfit("webhook", found, SECRETS["webhook"], now_s=1_614_265_330) is None


# ---------------------------------------------------------------------- who sent it
@pytest.mark.parametrize("provider", PROVIDERS)
def test_what_a_provider_signs_fits_and_nothing_else_does(provider: str) -> None:
    found = sent(provider)
    assert misfit(provider, found) is None
    other = b"whsec_b3RoZXI=" if provider == "webhook" else b"other"
    assert misfit(provider, sent(provider, secret=other)) is Misfit.MISMATCH
    assert misfit(provider, Arrived(CIMultiDict(), JSON, found.body)) is Misfit.MISSING
    if provider != "gitlab":  # which signs nothing
        tampered = Arrived(found.headers, JSON, found.body + b" ")
        assert misfit(provider, tampered) is Misfit.MISMATCH


@pytest.mark.parametrize("provider", PROVIDERS)
def test_while_secrets_rotate_each_of_them_fits(provider: str) -> None:
    old = b"whsec_b2xk" if provider == "webhook" else b"old"
    for secret in (old, SECRETS[provider]):
        found = sent(provider, secret=secret)
        assert misfit(provider, found, SECRETS[provider], old) is None


@pytest.mark.parametrize("provider", TIMED)
@pytest.mark.parametrize("direction", [-1, 1])
def test_a_signed_time_too_far_away_is_stale(provider: str, direction: int) -> None:
    near, far = NOW_S + direction * TOLERANCE_S, NOW_S + direction * (TOLERANCE_S + 1)
    assert misfit(provider, sent(provider), now_s=near) is None
    assert misfit(provider, sent(provider), now_s=far) is Misfit.STALE


@pytest.mark.parametrize("provider", PROVIDERS)
@given(text=st.text(max_size=50))
def test_a_signature_of_any_text_is_answered_not_raised(provider: str, text: str) -> None:
    found = sent(provider)
    for name in found.headers:
        changed = CIMultiDict(found.headers)
        changed[name] = text
        answer = misfit(provider, Arrived(changed, JSON, found.body))
        assert answer is None or isinstance(answer, Misfit)
        if any(part in name.lower() for part in ("signature", "token")):
            assert (answer is None) == (text == found.headers[name])


@pytest.mark.parametrize(
    ("provider", "name", "value"),
    [
        ("github", "X-Hub-Signature-256", "sha1=00"),
        ("slack", "X-Slack-Signature", "v1=00"),
        ("slack", "X-Slack-Request-Timestamp", "yesterday"),
        ("slack", "X-Slack-Request-Timestamp", "9" * 13),
        ("stripe", "Stripe-Signature", "v1=00"),
        ("stripe", "Stripe-Signature", f"t={NOW_S},t={NOW_S},v1=00"),
        ("stripe", "Stripe-Signature", f"t={NOW_S}"),
        ("stripe", "Stripe-Signature", f"t={NOW_S}" + ",v1=00" * (SIGNATURES_MAX + 1)),
        ("webhook", "webhook-signature", "v2,00"),
        ("webhook", "webhook-signature", "v1,00 " * (SIGNATURES_MAX + 1)),
        ("webhook", "webhook-timestamp", "-1"),
    ],
)
def test_a_signature_in_another_form_is_malformed(provider: str, name: str, value: str) -> None:
    found = sent(provider)
    headers = CIMultiDict(found.headers)
    headers[name] = value
    assert misfit(provider, Arrived(headers, JSON, found.body)) is Misfit.MALFORMED


def test_one_of_several_signatures_is_enough() -> None:
    stripe, standard = sent("stripe"), sent("webhook")
    header = stripe.headers["Stripe-Signature"]
    several = f"{header.replace('v1=', 'v1=00,v1=')},v0=zz"
    assert misfit("stripe", arrived({"Stripe-Signature": several}, stripe.body)) is None
    headers = CIMultiDict(standard.headers)
    headers["webhook-signature"] = f"v1a,zz v1,AAAA {headers['webhook-signature']}"
    assert misfit("webhook", Arrived(headers, JSON, standard.body)) is None


def test_headers_from_before_the_standard_are_known() -> None:
    found = sent("webhook")
    headers = {name.replace("webhook-", "svix-"): text for name, text in found.headers.items()}
    older = arrived(headers, found.body)
    assert misfit("webhook", older) is None
    assert read("webhook", older).dedupe_key == "delivery-1"


@pytest.mark.parametrize("secret", [b"whsec_", b"", b"whsec_%%%", b"plain text"])
def test_a_secret_that_is_no_base64_is_refused_without_being_told(secret: bytes) -> None:
    with pytest.raises(ValueError, match=r"expected") as caught:
        SCHEMES["webhook"].key_of(secret)
    assert "%%%" not in str(caught.value)
    assert "plain" not in str(caught.value)


# ---------------------------------------------------------------------- what it says
@pytest.mark.parametrize(
    ("provider", "kind", "dedupe_key", "occurred_at"),
    [
        ("github", "issues.opened", "delivery-1", None),
        ("gitlab", "merge_request.open", "delivery-1", None),
        ("linear", "Issue.create", "delivery-1", None),
        ("slack", "app_mention", "Ev1", None),
        ("stripe", "charge.failed", "evt_1", "2023-11-14T22:13:20.000Z"),
        ("webhook", "user.created", "delivery-1", "2023-11-14T22:13:20.000Z"),
    ],
)
def test_a_delivery_s_kind_id_and_time(
    provider: str, kind: str, dedupe_key: str, occurred_at: str | None
) -> None:
    delivered = read(provider, sent(provider))
    assert (delivered.kind, delivered.dedupe_key) == (kind, dedupe_key)
    assert delivered.occurred_at == occurred_at
    assert json.loads(delivered.payload) == BODIES[provider]


def test_github_without_an_action_and_in_a_form() -> None:
    body = b'{"ref": "main"}'
    headers = {**signed("github", body, b"s"), "X-GitHub-Event": "push"}
    assert read("github", arrived(headers, body)).kind == "push"
    form = urlencode({"payload": body.decode()}).encode()
    delivered = read("github", arrived(headers, form, FORM))
    assert (delivered.kind, delivered.payload, delivered.raw_body) == ("push", body, form)


@pytest.mark.parametrize(
    ("payload", "kind", "dedupe_key"),
    [
        (
            {"type": "event_callback", "event": {"type": "message", "subtype": "bot_message"}},
            "message.bot_message",
            None,
        ),
        ({"type": "app_rate_limited"}, "app_rate_limited", None),
        ({"type": "block_actions", "trigger_id": "t1"}, "block_actions", "t1"),
    ],
)
def test_slack_s_kinds(payload: dict[str, Any], kind: str, dedupe_key: str | None) -> None:
    for found in (
        arrived({}, payload),
        arrived({}, urlencode({"payload": json.dumps(payload)}).encode(), FORM),
    ):
        delivered = read("slack", found)
        assert (delivered.kind, delivered.dedupe_key) == (kind, dedupe_key)


def test_slack_s_challenges_are_answered() -> None:
    verification = {"type": "url_verification", "challenge": "3eZb", "token": "t"}
    assert SCHEMES["slack"].read(arrived({}, verification)) == Challenge("3eZb")
    assert SCHEMES["slack"].read(arrived({}, b"ssl_check=1&token=t", FORM)) == Challenge("")


def test_slack_s_verification_token_never_gets_into_an_event() -> None:
    payload = {"token": "top-secret", "type": "event_callback", "event": {"type": "message"}}
    delivered = read("slack", arrived({}, payload))
    assert json.loads(delivered.payload) == {**payload, "token": "[redacted]"}
    assert delivered.raw_body is None


@pytest.mark.parametrize(
    ("provider", "headers", "body", "problem"),
    [
        ("github", {"X-GitHub-Delivery": "1"}, b"{}", "header X-GitHub-Event is missing"),
        ("github", {"X-GitHub-Event": "push"}, b"{}", "header X-GitHub-Delivery is missing"),
        ("gitlab", {}, b"{}", "the body has neither object_kind nor event_name"),
        ("linear", {}, b'{"type": "Issue"}', "header Linear-Delivery is missing"),
        ("slack", {}, b"{}", "the body is not as its provider sends it: Object missing"),
        ("stripe", {}, b'{"id": 7}', "the body is not as its provider sends it: Expected `str`"),
        ("webhook", {}, b'{"type": 7}', "type: expected text"),
        ("webhook", {}, b"[]", "the body is not as its provider sends it: Expected `object`"),
        ("webhook", {}, b"{", "the body is not JSON"),
        ("webhook", {}, b'{"a": "\xff"}', "the body is not UTF-8 at byte 7"),
        ("webhook", {}, b'{"a":' + b"[" * 100_000, "the body"),
    ],
)
def test_what_is_no_event_is_refused_with_what_is_wrong(
    provider: str, headers: dict[str, str], body: bytes, problem: str
) -> None:
    with pytest.raises(MalformedBody) as caught:
        SCHEMES[provider].read(arrived(headers, body))
    assert caught.value.problems[0].startswith(problem)


@pytest.mark.parametrize("body", [b"a=%ff", b"\xc3=1", b"x", b"&".join([b"a=1"] * 101)])
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(MalformedBody, match="the body is no form"):
        form_fields(body)


def test_of_fields_of_one_name_the_first_counts() -> None:
    assert form_fields(b"a=1&a=2&b=") == {"a": "1", "b": ""}


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1.5, "1970-01-01T00:00:01.500Z"),
        ("2026-01-01T02:00:00+02:00", "2026-01-01T00:00:00.000Z"),
        ("0001-01-01T00:00:00+14:00", None),
        ("2026-01-01T00:00:00", None),
        ("soon", None),
        (-1, None),
        (253_402_300_800, None),
        (True, None),
        (None, None),
    ],
)
def test_times_of_providers_are_rfc_3339_or_none(moment: object, expected: str | None) -> None:
    assert time_of(moment) == expected
