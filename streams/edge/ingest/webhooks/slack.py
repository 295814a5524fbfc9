"""Slack: `X-Slack-Signature` over a version, a time and the body; events, interactions, commands.

| body | kind |
|---|---|
| `{"type": "url_verification"}` | none: the challenge is answered |
| `{"type": "event_callback", "event": {…}}` | the event's `type`, or `<type>.<subtype>` |
| any other JSON | its `type` |
| form with `payload`, an interaction | the payload's `type`, such as `block_actions` |
| form with `command` | `slash_command`, with the form's fields as payload |
| form with `ssl_check` | none |

Slack still sends its old verification token in every body: a secret, which never reaches the log.

Source: Slack documentation, "Verifying requests from Slack", "Using the Events API", "Handling
user interaction", "Slash commands".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from streams.edge.ingest.body import MalformedBody
from streams.edge.ingest.redaction import REDACTED
from streams.edge.ingest.webhooks.delivery import (
    FORM,
    JSON,
    Arrived,
    Challenge,
    Delivered,
    decode,
    form_fields,
    kind_of,
    time_of,
)
from streams.edge.ingest.webhooks.signing import Misfit, is_fresh, is_signed, sign

__all__ = ["Slack"]

_PREFIX = "v0="
_TOKEN = "token"  # noqa: S105 - the field's name
_SLASH_COMMAND = "slash_command"


class _Event(msgspec.Struct):
    type: str
    subtype: object = None


class _Payload(msgspec.Struct):
    type: str
    challenge: str = ""
    event: _Event | None = None
    event_id: str | None = None
    event_time: object = None
    trigger_id: str | None = None


class Slack:
    """Deliveries of Slack."""

    content_types = (JSON, FORM)
    quiet = True

    def key_of(self, secret: bytes) -> bytes:
        """Return the app's signing secret as it is."""
        return secret

    def misfit(self, arrived: Arrived, keys: Sequence[bytes], now_s: int) -> Misfit | None:
        """Return why this is not Slack's."""
        given = arrived.headers.get("X-Slack-Signature")
        moment = arrived.headers.get("X-Slack-Request-Timestamp")
        if given is None or moment is None:
            return Misfit.MISSING
        fresh = is_fresh(moment, now_s)
        if fresh is None or not given.startswith(_PREFIX):
            return Misfit.MALFORMED
        signed = (f"v0:{moment}:".encode(), arrived.body)
        expected = [sign(key, *signed).hex().encode() for key in keys]
        signature = given.removeprefix(_PREFIX).encode(errors="replace")
        if not is_signed([signature], expected):
            return Misfit.MISMATCH
        return None if fresh else Misfit.STALE

    def read(self, arrived: Arrived) -> Delivered | Challenge:
        """Return the delivery, or what Slack wants to hear; see the table above."""
        if arrived.content_type != FORM:
            return _read_json(arrived.body)
        fields = form_fields(arrived.body)
        if "payload" in fields:
            return _read_json(fields["payload"].encode())
        if "command" in fields:
            return Delivered(
                kind=_SLASH_COMMAND,
                payload=_without_token(fields),
                dedupe_key=fields.get("trigger_id") or None,
            )
        if "ssl_check" in fields:
            return Challenge("")
        raise MalformedBody(["the form has none of payload, command and ssl_check"])


def _read_json(text: bytes) -> Delivered | Challenge:
    payload = decode(text, _Payload)
    if payload.type == "url_verification":
        return Challenge(payload.challenge)
    kind = payload.type
    if payload.event is not None and payload.type == "event_callback":
        kind = kind_of(payload.event.type, payload.event.subtype)
    return Delivered(
        kind=kind,
        payload=_without_token(decode(text, dict[str, msgspec.Raw])),
        dedupe_key=payload.event_id or payload.trigger_id,
        occurred_at=time_of(payload.event_time),
    )


def _without_token(fields: Mapping[str, object]) -> bytes:
    if _TOKEN in fields:
        fields = {**fields, _TOKEN: REDACTED}
    return msgspec.json.encode(fields)
