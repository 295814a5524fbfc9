"""What holds between settings: defaults that follow from others, and values that contradict.

Both read settings as a mapping from field name to value, so that they serve a half-read
environment as well as a finished `Settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streams.setting import Declaration
from streams.settings_turns import turn_contradictions

__all__ = ["contradictions", "derived_defaults"]

# (smaller, larger, share): the smaller is at most the larger divided by the share.
_AT_MOST = (
    # Two lost heartbeats must not look like a dead member.
    ("heartbeat_interval_ms", "session_timeout_ms", 3),
    # An event grows on its way (envelope, dispatch row, invocation): ingest leaves room for it.
    ("http_max_body_bytes", "max_record_bytes", 3),
    ("min_insync_replicas", "replication_factor", 1),
    # The auditor reads a mailbox beside its outputs and its journal: those must outlive it.
    ("retention_mailbox_ms", "retention_output_ms", 1),
    ("retention_output_ms", "retention_audit_ms", 1),
    ("max_batch_records", "buffer_records", 1),
)


def derived_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return defaults that follow from what is set in `values`, which wins over them."""
    defaults: dict[str, Any] = {}
    if values.get("bootstrap") is not None:
        # A real cluster: room for twelve members a role, and one broker may be down.
        defaults |= {"partitions": 12, "replication_factor": 3}
        defaults["min_insync_replicas"] = max(1, values.get("replication_factor", 3) - 1)
    if "session_timeout_ms" in values:
        defaults["heartbeat_interval_ms"] = values["session_timeout_ms"] // 6
    if "max_record_bytes" in values:
        defaults["http_max_body_bytes"] = values["max_record_bytes"] // 3
    return defaults


def contradictions(values: Mapping[str, Any], declarations: Mapping[str, Declaration]) -> list[str]:
    """Return what is wrong between values that are each valid alone, one sentence a problem."""
    problems: list[str] = []
    for smaller, larger, share in _AT_MOST:
        limit = values[larger] // share
        if values[smaller] > limit:
            bound = declarations[larger].env + (f" / {share}" if share > 1 else "")
            problems.append(
                f"{declarations[smaller].env} is {values[smaller]}, "
                f"expected at most {bound} = {limit}"
            )
    return [*problems, *_security_contradictions(values), *turn_contradictions(values)]


def _security_contradictions(values: Mapping[str, Any]) -> list[str]:
    protocol = values["kafka_security_protocol"]
    sasl = protocol.startswith("SASL_")
    names = ("kafka_sasl_mechanism", "kafka_sasl_username", "kafka_sasl_password")
    given = [values[name] is not None for name in names]
    if values["bootstrap"] is None and protocol != "PLAINTEXT":
        problem = (
            f"KAFKA_SECURITY_PROTOCOL is {protocol}, expected KAFKA_BOOTSTRAP_SERVERS to be set "
            "with it: a broker of our own speaks PLAINTEXT"
        )
    elif sasl and not all(given):
        problem = (
            f"KAFKA_SECURITY_PROTOCOL is {protocol}, expected KAFKA_SASL_MECHANISM, "
            "KAFKA_SASL_USERNAME and KAFKA_SASL_PASSWORD to be set with it"
        )
    elif any(given) and not sasl:
        problem = (
            "KAFKA_SASL_MECHANISM, KAFKA_SASL_USERNAME or KAFKA_SASL_PASSWORD is set, expected "
            f"KAFKA_SECURITY_PROTOCOL to be SASL_PLAINTEXT or SASL_SSL, not {protocol}"
        )
    else:
        return []
    return [problem]
