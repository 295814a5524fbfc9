"""A manifest: what a team declares, read from an already parsed TOML document.  Pure.

    [[triggers]]
    id = "new-issue"
    kind = "webhook"
    provider = "github"
    match = { events = ["issues.opened"] }
    handler = "handlers::on_issue"
    retry = { max = 3, backoff = "immediate" }

    [exports]
    handlers = "handlers.py"

The keys of each table are `_TRIGGER`, `_ORCHESTRATOR` and `_TOP`; rules between keys are
`_RULES`.  A key that is left out and one that spells its default are the same definition.

Source: SEMANTICS 1.3-1.7; DESIGN decision A12 (`retry` omitted means svix, 7 attempts).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import blake2b
from typing import Any, cast

from streams.core.bounds import BINDINGS_MAX
from streams.core.expression import Expressions
from streams.core.handler_uri import (
    DEFAULT_MODULE,
    EXPECTED,
    HandlerUri,
    is_name,
    parse_handler,
)
from streams.core.manifest_agents import AgentDefinition, agents_of, read_agents
from streams.core.manifest_budget import (
    BUDGET_FIELDS,
    NAMESPACE_BUDGET,
    adopt_max_concurrent,
    budget_rules,
    is_function,
    read_namespace_budget,
)
from streams.core.manifest_flow import FLOW_FIELDS, flow_rules
from streams.core.manifest_handler import (
    HANDLER_FIELDS,
    handler_definition,
    handler_rules,
    read_pumps,
)
from streams.core.manifest_kinds import KIND_FIELDS, events_of, kind_rules
from streams.core.manifest_place import Place, shown
from streams.core.manifest_provider import (
    KIND,
    PROVIDER,
    kind_is_known,
    provider_supports_kind,
)
from streams.core.manifest_retry import RETRY_DEFAULT, read_retry, retry_policy_of
from streams.core.manifest_scheduler import read_scheduler, scheduler_of
from streams.core.manifest_sources import Values, read_sources
from streams.core.manifest_table import (
    TEXT_CHARS_MAX,
    Field,
    given_fields,
    read_json,
    read_table,
    read_text,
    read_texts,
    table_of,
)
from streams.core.manifest_target import target_rules
from streams.core.manifest_webhook import INGRESS_FIELDS, SECRETS, ingress_of, webhook_rules
from streams.core.schedule import Calendar
from streams.core.webhook import INGRESS, route_problem
from streams.core.wire import BindingDefinition, SchedulerPolicy

__all__ = ["NAMESPACE_DEFAULT", "Manifest", "canonical_json", "parse_manifest", "table_name"]

NAMESPACE_DEFAULT = "default"

_FINGERPRINT_BYTES = 16
_NAMESPACE = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A manifest without problems.

    `bindings` are in the order of the file, their versions not yet chosen (0).  `exports` maps each
    module that a handler may name to its Python file, relative to the manifest, or dotted module.
    `warnings` name what is taken, but should be written in another way.
    `pump_max_outstanding` and `scheduler` are None when the manifest does not say them.  `agents`
    run turns; the registry knows nothing of them.  `tables` names the table of each binding.
    """

    file: str
    namespace: str
    exports: Mapping[str, str]
    bindings: tuple[BindingDefinition, ...]
    warnings: tuple[str, ...] = ()
    pump_max_outstanding: int | None = None
    scheduler: SchedulerPolicy | None = None
    agents: tuple[AgentDefinition, ...] = ()
    tables: tuple[str, ...] = ()


def parse_manifest(
    document: Mapping[str, Any],
    file: str,
    /,
    expressions: Expressions | None = None,
    calendar: Calendar | None = None,
) -> Manifest | tuple[str, ...]:
    """Read a manifest.

    Args:    document: as `tomllib` gives it.  file: its path, as problems should name it.
             expressions: compile the manifest's expressions, so that a bad one is a problem.
             calendar: reads its schedules and zones, likewise.
    Returns: the manifest, or every problem of it: file, table, trigger id, field, expectation.
    """
    problems: list[str] = []
    place = Place(file, problems, expressions=expressions, calendar=calendar)
    top = read_table(document, _TOP, place)
    exports: dict[str, str] = {DEFAULT_MODULE: f"{DEFAULT_MODULE}.py", **top["exports"]}
    orchestrator: Mapping[str, Any] = top["orchestrator"]
    namespace: str = orchestrator["name"]
    bindings: list[BindingDefinition] = []
    tables: list[str] = []
    first_at: dict[str, Place] = {}
    for index, given in enumerate(top["triggers"], start=1):
        for values, where in _read_trigger(given, place.in_table(table_name(index, given))):
            bindings.append(_binding(values, where, exports, orchestrator))
            tables.append(where.table)
            trigger_id: str = values["id"]
            # Where an id is missing or unusable, that is said already.
            if trigger_id.strip(".") and first_at.setdefault(trigger_id, where) is not where:
                stands = f"is {trigger_id!r}, which {first_at[trigger_id].name} has already"
                where.field("id").refuse(stands)
    if len(bindings) > BINDINGS_MAX:
        place.refuse(f"has {len(bindings)} bindings, expected at most {BINDINGS_MAX}")
    agents = agents_of(top["agents"], exports, place)
    if not problems:
        disagreement = route_problem(bindings, ())
        if disagreement is not None:
            place.refuse(disagreement)
    if problems:
        return tuple(problems)
    return Manifest(
        file=file,
        namespace=namespace,
        exports=exports,
        bindings=tuple(bindings),
        warnings=tuple(place.warnings),
        pump_max_outstanding=orchestrator.get("pumps", {}).get("max_outstanding"),
        scheduler=scheduler_of(orchestrator.get("scheduler")),
        agents=agents,
        tables=tuple(tables),
    )


def table_name(index: int, given: object, /) -> str:
    """Name the table of the `index`th trigger, with its id where it has a readable one."""
    trigger_id = ""
    if isinstance(given, Mapping):
        trigger_id = cast("Mapping[str, object]", given).get("id")
    named = ""
    if isinstance(trigger_id, str) and trigger_id.strip() and trigger_id.isprintable():
        named = f" ({trigger_id[:TEXT_CHARS_MAX]})"
    return f"[[triggers]] {index}{named}"


def _read_trigger(given: object, place: Place) -> list[tuple[Values, Place]]:
    """Read one table into what its bindings are made of, one unless it has sources."""
    table = table_of(given, place) or {}
    if "sources" in table:
        return read_sources(table, _TRIGGER, place)
    return [(read_table(table, _TRIGGER, place), place)]


def _binding(
    values: Values, place: Place, exports: Mapping[str, str], orchestrator: Mapping[str, Any]
) -> BindingDefinition:
    """Make a binding; with problems noted, what is returned is not used."""
    values = {**values, "budget": dict(values["budget"]) if values["budget"] else None}
    adopt_max_concurrent(values, place)
    for rule in _RULES:
        rule(values, exports, place)
    handler: HandlerUri = values["handler"] or _NO_HANDLER
    given = given_fields({**values, "handler": handler.uri}, _TRIGGER)
    definition = handler_definition(given)
    # Another file behind the same reference is another definition.
    definition["module"] = exports.get(handler.module)
    match: dict[str, Any] = values["match"] or {"events": []}
    ingress = ingress_of(orchestrator, match)
    if ingress:
        definition[INGRESS] = ingress
    if is_function(values["when"]):
        definition["when_module"] = exports.get(parse_handler(values["when"]).module)
    spends = "budget" in definition or values["when_budget"] is not None
    whole = orchestrator.get("budget")
    if whole and (spends or is_function(values["when"])):
        definition[NAMESPACE_BUDGET] = whole
    text = canonical_json(definition)
    return {
        "trigger_id": values["id"],
        "version": 0,
        "binding_key": "",
        "namespace": orchestrator["name"],
        "kind": values["kind"],
        "provider": values["provider"],
        "events": [] if place.problems else events_of(values["kind"], match["events"]),
        "handler": handler.target,
        "handler_kind": handler.kind,
        "target_uri": handler.uri,
        "retry": retry_policy_of(values["retry"]),
        "fingerprint": blake2b(text.encode(), digest_size=_FINGERPRINT_BYTES).hexdigest(),
        "definition": text,
    }


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _read_triggers(value: object, place: Place) -> list[object]:
    if not isinstance(value, list):
        place.expected(value, "tables written as [[triggers]]")
        return []
    triggers = cast("list[object]", value)
    if len(triggers) > BINDINGS_MAX:
        place.refuse(f"has {len(triggers)} entries, expected at most {BINDINGS_MAX}")
        return []
    return triggers


_MATCH_KEYS = ("events", "path")


def _read_match(value: object, place: Place) -> dict[str, Any]:
    """Take `events`, and keep every other key: ingress may route by it."""
    table = table_of(value, place)
    if table is None:
        return {"events": []}
    match = {name: read_json(each, place.field(name)) for name, each in table.items()}
    for name in match:
        near = get_close_matches(name.lower(), _MATCH_KEYS, n=1, cutoff=0.7)
        # It would be kept for nobody, and the trigger take every kind or no webhook.
        if near and near[0] not in match:
            place.field(name).refuse(f"is not read; did you mean {near[0]!r}?")
    match["events"] = read_texts(table.get("events", []), place.field("events"))
    return match


def _read_handler(value: object, place: Place) -> HandlerUri:
    if not isinstance(value, str):
        place.refuse(f"is {shown(value)}: {EXPECTED}")
        return _NO_HANDLER
    if len(value) > TEXT_CHARS_MAX:
        place.expected(value, f"at most {TEXT_CHARS_MAX} characters, not {len(value)}")
        return _NO_HANDLER
    try:
        return parse_handler(value)
    except ValueError as error:
        place.refuse(f"{error}: {EXPECTED}")
        return _NO_HANDLER


_NO_HANDLER = HandlerUri("local", "")


def _read_exports(value: object, place: Place) -> dict[str, str]:
    exports: dict[str, str] = {}
    for name, target in (table_of(value, place) or {}).items():
        entry = place.field(name)
        # Kept even when it cannot be used, so that its handlers are not refused on top.
        exports[name] = target if isinstance(target, str) else ""
        if not is_name(name):
            entry.refuse("is not a name that `module::function` can use")
        elif not _is_module(target):
            entry.expected(
                target, "a Python file relative to the manifest, such as 'lib.py', or a module"
            )
    return exports


def _is_module(target: object) -> bool:
    if not isinstance(target, str):
        return False
    if target.endswith(".py"):
        return not target.startswith(("/", "~")) and target.isprintable() and "\\" not in target
    return all(is_name(part) for part in target.split("."))


def _read_orchestrator(value: object, place: Place) -> dict[str, Any]:
    table = table_of(value, place)
    return read_table({} if table is None else table, _ORCHESTRATOR, place)


def _read_namespace(value: object, place: Place) -> str:
    if not isinstance(value, str) or _NAMESPACE.fullmatch(value) is None:
        place.expected(value, "1 to 100 letters, digits, dots, dashes or underscores")
        return NAMESPACE_DEFAULT
    return value


_Rule = Callable[[Mapping[str, Any], Mapping[str, str], Place], None]
_RULES: tuple[_Rule, ...] = (
    kind_is_known,
    provider_supports_kind,
    target_rules,
    handler_rules,
    flow_rules,
    budget_rules,
    webhook_rules,
    kind_rules,
)

_LATER_TRIGGER_KEYS = (
    *("autonomy_tier", "tier", "allow_cleartext"),
    *("window", "dlq_alerts", "dlq-alerts"),
    # Kind-specific: poll, and streams of other providers than Kafka.
    *("interval", "subject", "subjects", "slot"),
    *("address", "domain", "routing", "url", "path"),
)

_TRIGGER: tuple[Field, ...] = (
    Field(name="id", read=read_text, required=True, default=""),
    KIND,
    PROVIDER,
    Field(
        name="match",
        read=_read_match,
        required=True,
        missing='is missing: the trigger needs one, such as match = { events = ["push"] }',
    ),
    Field(name="handler", read=_read_handler, required=True, missing=f"is missing: {EXPECTED}"),
    Field(name="retry", read=read_retry, default=RETRY_DEFAULT),
    SECRETS,
    *HANDLER_FIELDS,
    *FLOW_FIELDS,
    *BUDGET_FIELDS,
    *KIND_FIELDS,
    *(Field(name=name) for name in _LATER_TRIGGER_KEYS),
)

_ORCHESTRATOR: tuple[Field, ...] = (
    Field(name="name", read=_read_namespace, default=NAMESPACE_DEFAULT),
    *INGRESS_FIELDS,
    Field(name="budget", read=read_namespace_budget),
    Field(name="pumps", read=read_pumps, default={}),
    Field(name="scheduler", read=read_scheduler),
    Field(name="drain"),
)

_TOP: tuple[Field, ...] = (
    Field(name="triggers", read=_read_triggers, default=[]),
    Field(name="exports", read=_read_exports, default={}),
    Field(name="orchestrator", read=_read_orchestrator, default={"name": NAMESPACE_DEFAULT}),
    Field(name="agents", read=read_agents, default={}),
    *(Field(name=name) for name in ("package", "dependencies", "providers", "hooks")),
)
