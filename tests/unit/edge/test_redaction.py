import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.edge.ingest.redaction import REDACTED, redact


@pytest.mark.parametrize(
    "name",
    [
        *("User-Agent", "X-Request-Id", "X-Correlation-Id", "Content-Type", "Content-Length"),
        *("X-GitHub-Delivery", "X-GitHub-Event", "X-Hub-Signature-256", "X-Slack-Signature"),
        *("Linear-Signature", "X-Notion-Signature", "webhook-timestamp", "X-Custom"),
        # Keeping wins: each of these also contains what would be redacted.
        *("X-Token-Event", "Secret-Delivery", "X-Key-Timestamp", "Api-Key-Request-Id"),
    ],
)
def test_delivery_ids_signatures_and_plain_headers_are_kept(name: str) -> None:
    assert redact({name: "v"}) == {name.lower(): "v"}  # vector 1-20


@pytest.mark.parametrize(
    "name",
    [
        *("Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key"),
        *("X-Client-Secret", "X-Auth-Token", "X-GitLab-Token", "Keyring"),
    ],
)
def test_what_sounds_like_a_secret_loses_its_value(name: str) -> None:
    assert redact({name: "v"}) == {name.lower(): REDACTED}  # vector 1-20


def test_a_name_on_the_safe_list_is_kept() -> None:
    headers = {"Idempotency-Key": "k", "X-Api-Key": "s"}
    assert redact(headers, safe=frozenset({"idempotency-key"})) == {
        "idempotency-key": "k",
        "x-api-key": REDACTED,
    }


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_names_come_out_in_lower_case_and_in_order(headers: dict[str, str]) -> None:
    redacted = redact(headers)
    assert list(redacted) == sorted({name.lower() for name in headers})
    assert all(each in {*headers.values(), REDACTED} for each in redacted.values())
