"""Every setting of the application: one frozen value, read once, passed down.

`Settings.from_env` is the only reader of the environment.  A value that cannot be used is an error
that names the variable and what was expected, never a silent default, and all of them are reported
together.  Policy that changes what a fold decides does not belong here: it enters the log as a
control record, so that a replay sees the policy that was in force.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streams.errors import ConfigError
from streams.setting import (
    ADDRESSES,
    FILE,
    NAME,
    ORIGINS,
    PATH,
    PORT,
    TEXT,
    URL,
    Declaration,
    SettingRow,
    choice,
    integer,
    setting,
)
from streams.setting_rules import contradictions, derived_defaults
from streams.settings_scheduler import SchedulerSettings
from streams.settings_turns import TurnSettings

__all__ = ["Lookup", "SettingRow", "Settings"]

Lookup = Callable[[str], str | None]

_SECOND_MS = 1_000
_HOUR_MS = 3_600 * _SECOND_MS
_DAY_MS = 24 * _HOUR_MS
_YEAR_MS = 366 * _DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(SchedulerSettings, TurnSettings):
    """All settings, valid as a whole.  `Settings()` is a laptop with an embedded broker.

    Raises ConfigError, also from `dataclasses.replace`, when values contradict each other.
    """

    # Kafka
    bootstrap: str | None = setting(
        "KAFKA_BOOTSTRAP_SERVERS",
        None,
        ADDRESSES,
        "Kafka cluster to use; unset means a broker of our own in the state directory.",
    )
    kafka_security_protocol: str = setting(
        "KAFKA_SECURITY_PROTOCOL",
        "PLAINTEXT",
        choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "Transport of every Kafka connection.",
    )
    kafka_sasl_mechanism: str | None = setting(
        "KAFKA_SASL_MECHANISM",
        None,
        choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "SASL mechanism, with a SASL_ security protocol.",
    )
    kafka_sasl_username: str | None = setting("KAFKA_SASL_USERNAME", None, TEXT, "SASL user.")
    kafka_sasl_password: str | None = setting(
        "KAFKA_SASL_PASSWORD", None, TEXT, "SASL password.", secret=True
    )
    kafka_ssl_ca_location: Path | None = setting(
        "KAFKA_SSL_CA_LOCATION", None, FILE, "CA certificates (PEM); unset means the system's."
    )
    schema_registry_url: str | None = setting(
        "SCHEMA_REGISTRY_URL",
        None,
        URL,
        "Schema registry; set means Confluent wire format, unset single-object encoding.",
    )
    session_timeout_ms: int = setting(
        "HARN_SESSION_TIMEOUT_MS",
        6 * _SECOND_MS,
        integer(1 * _SECOND_MS, 300 * _SECOND_MS),
        "Silence after which a group member is taken for dead, ms.",
    )
    heartbeat_interval_ms: int = setting(
        "HARN_HEARTBEAT_INTERVAL_MS",
        1_000,
        integer(100, 100 * _SECOND_MS),
        "Time between a member's heartbeats, ms; at most a third of the session timeout.",
        shown="a sixth of the session timeout: 1000",
    )
    transaction_timeout_ms: int = setting(
        "HARN_TRANSACTION_TIMEOUT_MS",
        10 * _SECOND_MS,
        integer(1 * _SECOND_MS, 900 * _SECOND_MS),
        "Time after which the broker aborts a stopped owner's transaction, ms.",
    )
    instance_id: str | None = setting(
        "HARN_INSTANCE_ID",
        None,
        NAME,
        "Stable name of this process: makes a restart after a crash cheap (static membership).",
    )

    # Topics
    partitions: int = setting(
        "HARN_PARTITIONS",
        4,
        integer(1, 1_024),
        "Partitions of mailboxes, tables and outputs; fixed once they hold state.",
        shown="12 (4 on the embedded broker)",
    )
    replication_factor: int = setting(
        "HARN_REPLICATION_FACTOR",
        1,
        integer(1, 15),
        "Replicas of every topic.",
        shown="3 (1 on the embedded broker)",
    )
    min_insync_replicas: int = setting(
        "HARN_MIN_INSYNC_REPLICAS",
        1,
        integer(1, 15),
        "Replicas that must have a record before it counts as written.",
        shown="replicas - 1, at least 1: 2 (1 on the embedded broker)",
    )
    retention_mailbox_ms: int = setting(
        "HARN_RETENTION_MAILBOX_MS",
        7 * _DAY_MS,
        integer(_HOUR_MS, 100 * _YEAR_MS),
        "Age at which mailbox records are removed, ms.",
    )
    retention_output_ms: int = setting(
        "HARN_RETENTION_OUTPUT_MS",
        8 * _DAY_MS,
        integer(_HOUR_MS, 100 * _YEAR_MS),
        "Age at which outputs are removed, ms; at least that of mailboxes.",
    )
    retention_audit_ms: int = setting(
        "HARN_RETENTION_AUDIT_MS",
        30 * _DAY_MS,
        integer(_HOUR_MS, 100 * _YEAR_MS),
        "Age at which journal and checkpoints are removed, ms; at least that of outputs.",
    )

    # Stages
    state_dir: Path = setting(
        "HARN_STATE_DIR",
        Path(".harn/orchestrator"),
        PATH,
        "Where the broker, stores and SQLite keep files; also HARN_ORCHESTRATOR_STATE_DIR.",
        also="HARN_ORCHESTRATOR_STATE_DIR",
    )
    manifest: Path | None = setting(
        "HARN_ORCHESTRATOR_MANIFEST", None, PATH, "Of commands that are given none; else harn.toml."
    )
    store: str = setting(
        "HARN_STORE",
        "memory",
        choice("memory", "rocksdb"),
        "Where rows live: rocksdb starts faster with many rows, memory is faster under load.",
    )
    max_batch_records: int = setting(
        "HARN_MAX_BATCH_RECORDS",
        1_000,
        integer(1, 100_000),
        "Records folded in one transaction, at most.",
    )
    buffer_records: int = setting(
        "HARN_BUFFER_RECORDS",
        20_000,
        integer(1, 10_000_000),
        "Fetched records that may wait per partition before fetching pauses.",
    )
    max_record_bytes: int = setting(
        "HARN_MAX_RECORD_BYTES",
        900_000,
        integer(10_000, 900_000),
        "Largest record a fold may emit, bytes.",
    )
    checkpoint_interval_ms: int = setting(
        "HARN_CHECKPOINT_INTERVAL_MS",
        _HOUR_MS,
        integer(1 * _SECOND_MS, _YEAR_MS),
        "Time between two audit checkpoints of a partition, ms.",
    )
    checkpoint_records: int = setting(
        "HARN_CHECKPOINT_RECORDS",
        1_000_000,
        integer(1, 1_000_000_000),
        "Records between two audit checkpoints of a partition.",
    )

    # Events and handlers
    event_id_window_ms: int = setting(
        "HARN_EVENT_ID_WINDOW_MS",
        _DAY_MS,
        integer(1 * _SECOND_MS, _YEAR_MS),
        "How long an event id is remembered so that a second delivery is dropped, ms.",
    )
    dedupe_max_rows: int = setting(
        "HARN_DEDUPE_MAX_ROWS",
        1_000_000,
        integer(1, 1_000_000_000),
        "Event ids remembered per partition, at most.",
    )
    lease_ms: int = setting(
        "HARN_LEASE_MS",
        24 * _SECOND_MS,
        integer(1 * _SECOND_MS, _DAY_MS),
        "Lease of a running handler, ms; when it ends unrenewed the attempt is issued again.",
    )
    cancel_ttl_ms: int = setting(
        "HARN_CANCEL_TTL_MS",
        _DAY_MS,
        integer(1 * _SECOND_MS, _YEAR_MS),
        "How long a cancel request waits for a dispatch that has not come yet, ms.",
    )
    action_graph: str = setting(
        "HARN_ACTION_GRAPH",
        "on",
        choice("on", "off"),
        "Whether each step of a dispatch is drawn into `observability.action_graph`.",
    )
    invoker_max_outstanding: int = setting(
        "HARN_INVOKER_MAX_OUTSTANDING",
        64,
        integer(1, 100_000),
        "Handlers one invoker runs at once.",
    )
    invoker_processes: int = setting(
        "HARN_INVOKER_PROCESSES",
        0,
        integer(0, 1_024),
        "Processes in which one invoker runs handlers that want one; 0 means one a core.",
    )
    invoker_process_max_bytes: int = setting(
        "HARN_INVOKER_PROCESS_MAX_BYTES",
        2_000_000_000,
        integer(0, 1 << 50),
        "Memory of each such process, bytes: more is refused with MemoryError; 0 sets no bound.",
    )
    drain_ms: int = setting(
        "HARN_DRAIN_MS",
        25 * _SECOND_MS,
        integer(0, _DAY_MS),
        "Time running handlers get to finish when the process is asked to stop, ms.",
    )

    # HTTP, metrics, logs
    http_host: str = setting(
        "HARN_HTTP_HOST", "127.0.0.1", TEXT, "Address the event API listens on."
    )
    http_port: int = setting(
        "HARN_HTTP_PORT", 8_080, PORT, "Port the event API listens on; 0 picks a free one."
    )
    http_max_body_bytes: int = setting(
        "HARN_HTTP_MAX_BODY_BYTES",
        300_000,
        integer(1, 300_000),
        "Largest request body, bytes; at most a third of the largest record.",
        shown="a third of the largest record: 300000",
    )
    http_allowed_origins: str | None = setting(
        "HARN_HTTP_ALLOWED_ORIGINS",
        None,
        ORIGINS,
        "Origins of web pages that may send events; unset means none: browsers are refused.",
    )
    secrets_dir: Path = setting(
        "HARN_SECRETS_DIR",
        Path(".harn/secrets"),
        PATH,
        "Where ingest finds the secrets of webhooks: one file each, `<namespace>.<name>`.",
    )
    metrics_host: str = setting(
        "HARN_METRICS_HOST", "127.0.0.1", TEXT, "Address metrics and health listen on."
    )
    metrics_port: int = setting(
        "HARN_METRICS_PORT", 9_464, PORT, "Port metrics and health listen on; 0 picks a free one."
    )
    log_level: str = setting(
        "HARN_LOG_LEVEL",
        "info",
        choice("debug", "info", "warning", "error"),
        "Least severe level that is logged.",
    )
    log_format: str = setting(
        "HARN_LOG_FORMAT", "text", choice("text", "json"), "Shape of a log line."
    )

    # Embedded broker
    cache_dir: Path = setting(
        "HARN_CACHE_DIR",
        Path("~/.cache/harn").expanduser(),
        PATH,
        "Where the embedded broker's jars are kept, for every state directory.",
        shown="~/.cache/harn",
    )
    maven_repository: str | None = setting(
        "HARN_MAVEN_REPOSITORY",
        None,
        URL,
        "Maven repository to fetch the jars from; unset means the public one.",
    )
    java_home: Path | None = setting(
        "JAVA_HOME",
        None,
        PATH,
        "Java 17 or newer for the embedded broker, where the one that we bring does not run.",
    )

    def __post_init__(self) -> None:
        values = {name: getattr(self, name) for name in _DECLARATIONS}
        problems = contradictions(values, _DECLARATIONS)
        if problems:
            raise ConfigError(problems)

    @classmethod
    def from_env(cls, lookup: Lookup = os.environ.get, **overrides: Any) -> Settings:  # noqa: ANN401
        """Read every variable through `lookup`; an empty one counts as unset.

        `overrides` are fields by name, already parsed (a command's options); they win.
        Raises ConfigError with every problem found.
        """
        values, problems = _read(lookup)
        values.update(overrides)
        try:
            settings = cls(**{**derived_defaults(values), **values})
        except ConfigError as error:
            problems.extend(error.problems)
        if problems:
            raise ConfigError(problems, remedy="`harn settings` lists every variable")
        return settings

    @property
    def embedded(self) -> bool:
        """Whether no cluster is named, so that a broker of our own is used."""
        return self.bootstrap is None

    def with_bootstrap(self, bootstrap: str) -> Settings:
        """Return the same settings for the broker at `bootstrap`; counts chosen for it stay."""
        return dataclasses.replace(self, bootstrap=bootstrap)

    def environment(self) -> dict[str, str]:
        """Return the variables with which `from_env` gives an equal value, secrets included."""
        return {
            declared.env: str(value)
            for name, declared in _DECLARATIONS.items()
            if (value := getattr(self, name)) is not None
        }

    def describe(self) -> tuple[SettingRow, ...]:
        """Return one row per setting in declaration order, secrets redacted."""
        return tuple(
            _DECLARATIONS[each.name].row(each.name, each.default, getattr(self, each.name))
            for each in sorted(dataclasses.fields(self), key=_part_of)
        )


_PARTS = (SchedulerSettings, TurnSettings)


def _part_of(field: dataclasses.Field[Any]) -> int:
    """The place of the part that a field belongs to, 0 for none: parts are told last."""
    return next(
        (at for at, part in enumerate(_PARTS, 1) if field.name in part.__dataclass_fields__), 0
    )


_DECLARATIONS: dict[str, Declaration] = {
    each.name: each.metadata["declaration"]
    for each in sorted(dataclasses.fields(Settings), key=_part_of)
}


def _read(lookup: Lookup) -> tuple[dict[str, Any], list[str]]:
    """Parse what is set: values by field name, and one problem per variable that cannot be."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, declared in _DECLARATIONS.items():
        env, text = declared.found(lookup)
        if not text:
            continue
        try:
            values[name] = declared.kind.parse(text)
        except ValueError:
            shown = "a secret value" if declared.secret else repr(declared.shown_value(text))
            problems.append(f"{env} is {shown}, expected {declared.kind.expected}")
    return values, problems
