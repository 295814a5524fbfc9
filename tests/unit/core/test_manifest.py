import json
from typing import Any

import pytest

from streams.core.manifest import Manifest, parse_manifest
from streams.core.provider_catalog import PROVIDERS
from tests.support.one_trigger import TRIGGER, binding, changed, parse, problems


def test_a_trigger_becomes_a_binding_whose_version_is_not_chosen_yet() -> None:
    found = binding(TRIGGER)
    assert found["trigger_id"] == "new-issue"
    assert (found["version"], found["binding_key"]) == (0, "")
    assert (found["kind"], found["provider"], found["events"]) == (
        "webhook",
        "github",
        ["issues.opened"],
    )
    assert (found["handler"], found["handler_kind"], found["target_uri"]) == (
        "on_issue",
        "local",
        "on_issue",
    )
    assert found["namespace"] == "default"


def test_an_omitted_retry_means_seven_attempts_on_the_svix_schedule() -> None:
    assert binding(TRIGGER)["retry"] == {
        "backoff": "svix",
        "max_attempts": 7,
        "delay_ms": 0,
        "cap_ms": 0,
    }


@pytest.mark.parametrize(
    ("retry", "backoff", "delay_ms", "cap_ms"),
    [
        ('{ backoff = "linear", delay = "2s" }', "linear", 2_000, 0),
        ('{ backoff = "linear", delay = 2500 }', "linear", 2_500, 0),
        ('{ backoff = "linear", delay = "24h" }', "linear", 86_400_000, 0),
        (
            '{ backoff = "exponential", base = "250ms", cap = "10m" }',
            "exponential",
            250,
            600_000,
        ),
    ],
)
def test_delays_of_a_retry_table(retry: str, backoff: str, delay_ms: int, cap_ms: int) -> None:
    found = binding(changed(f"retry = {retry}"))["retry"]
    assert (found["backoff"], found["delay_ms"], found["cap_ms"]) == (backoff, delay_ms, cap_ms)


@pytest.mark.parametrize(
    ("retry", "backoff", "attempts"),
    [
        ("{ max = 3 }", "svix", 3),
        ("{ max = 0 }", "svix", 7),
        ('{ backoff = "immediate" }', "immediate", 7),
        ('{ max = 100, backoff = "immediate", retention_days = 1 }', "immediate", 100),
    ],
)
def test_a_retry_table_fills_what_it_leaves_out(retry: str, backoff: str, attempts: int) -> None:
    found = binding(changed(f"retry = {retry}"))["retry"]
    assert (found["backoff"], found["max_attempts"]) == (backoff, attempts)


def test_a_match_without_events_takes_every_kind_and_keeps_its_other_keys() -> None:
    found = binding(changed('match = { team = "core" }', without="match"))
    assert found["events"] == []
    assert json.loads(found["definition"])["match"] == {"events": [], "team": "core"}


def test_the_namespace_comes_from_the_orchestrator_table() -> None:
    manifest = parse('[orchestrator]\nname = "team-a"\n' + TRIGGER)
    assert isinstance(manifest, Manifest)
    assert manifest.namespace == "team-a"
    assert manifest.bindings[0]["namespace"] == "team-a"


def test_lib_beside_the_manifest_is_an_export_of_its_own_accord() -> None:
    manifest = parse(TRIGGER)
    assert isinstance(manifest, Manifest)
    assert manifest.exports == {"lib": "lib.py"}
    elsewhere = parse('[exports]\nlib = "src/handlers.py"\nother = "team.handlers"\n' + TRIGGER)
    assert isinstance(elsewhere, Manifest)
    assert elsewhere.exports == {"lib": "src/handlers.py", "other": "team.handlers"}


def test_an_empty_manifest_is_one_without_bindings() -> None:
    manifest = parse("")
    assert isinstance(manifest, Manifest)
    assert manifest.bindings == ()


# ---------------------------------------------------------------------- fingerprints
@pytest.mark.parametrize(
    "spelled_out",
    [
        "retry = { max = 7 }",
        'retry = { max = 0, backoff = "svix", retention_days = 7 }',
        "retry = {}",
    ],
)
def test_spelling_a_default_out_is_the_same_definition(spelled_out: str) -> None:
    assert binding(changed(spelled_out))["fingerprint"] == binding(TRIGGER)["fingerprint"]


@pytest.mark.parametrize(
    ("without", "line"),
    [
        ("match", 'match = { events = ["issues.closed"] }'),
        ("match", 'match = { events = ["issues.opened"], team = "core" }'),
        ("handler", 'handler = "on_other"'),
        ("provider", 'provider = "gitlab"'),
        ("retry", "retry = { max = 3 }"),
        ("retry", "retry = { retention_days = 8 }"),
    ],
)
def test_any_change_of_meaning_is_another_definition(without: str, line: str) -> None:
    other = binding(changed(line, without=without))
    assert other["fingerprint"] != binding(TRIGGER)["fingerprint"]


def test_another_file_behind_the_same_handler_is_another_definition() -> None:
    moved = binding('[exports]\nlib = "elsewhere.py"\n' + TRIGGER)
    assert moved["fingerprint"] != binding(TRIGGER)["fingerprint"]


def test_order_of_keys_and_the_namespace_do_not_enter_the_fingerprint() -> None:
    reordered = "[[triggers]]\n" + "\n".join(sorted(TRIGGER.splitlines()[2:]))
    named = '[orchestrator]\nname = "other"\n' + TRIGGER
    assert binding(reordered)["fingerprint"] == binding(TRIGGER)["fingerprint"]
    assert binding(named)["fingerprint"] == binding(TRIGGER)["fingerprint"]


def test_the_definition_is_canonical_json() -> None:
    text = binding(TRIGGER)["definition"]
    canonical = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert text == canonical


# ---------------------------------------------------------------------- what is refused
def test_an_id_that_cannot_be_read_is_not_repeated_in_the_place() -> None:
    document = {"triggers": [{"id": "a\x1b[2J"}, {"id": "x" * 5_000}]}
    found = parse_manifest(document, "harn.toml")
    assert isinstance(found, tuple)
    assert all(problem.isprintable() and len(problem) < 500 for problem in found)


@pytest.mark.parametrize(
    ("without", "line", "problem"),
    [
        ("id", "", "id is missing"),
        ("id", 'id = " "', "id is empty"),
        ("id", "id = 3", "id is 3, expected text"),
        ("id", 'id = "a\\u0007b"', "expected text without control characters"),
        ("id", f'id = "{"x" * 201}"', "expected at most 200 characters, not 201"),
        ("kind", "", "kind is missing: how the events arrive, one of webhook, cron, stream, ch"),
        ("kind", 'kind = "poll"', "kind 'poll' is not built in this release"),
        ("kind", 'kind = "Cron"', "kind is 'Cron', expected one of webhook, cron, stream, channel"),
        ("kind", 'kind = "Cron"', "channel.emit; did you mean 'cron'?"),
        ("provider", "", "provider is missing: who sends the events, one of github, gitlab,"),
        ("provider", 'provider = "githbu"', "'githbu' is not registered; providers of kind 'webho"),
        ("provider", 'provider = "githbu"', "notion, stripe, webhook; did you mean 'github'?"),
        (
            "provider",
            'provider = "kafka"',
            "provider 'kafka' does not support kind 'webhook', only ",
        ),
        ("match", 'match = { event = ["a"] }', "match.event is not read; did you mean 'events'?"),
        (
            "match",
            'match = { events = [], paths = "/a" }',
            "paths is not read; did you mean 'path'?",
        ),
        ("match", "", "match is missing"),  # vector 1-10
        ("match", 'match = "push"', "match is 'push', expected a table"),
        ("match", 'match = { events = "push" }', "match.events is 'push', expected a list"),
        ("match", 'match = { events = ["a", ""] }', "match.events[1] is empty"),
        ("match", 'match = { events = ["a", "a"] }', "match.events[1] is 'a', which stands in"),
        ("match", "match = { since = 2026-01-01 }", "match.since is datetime.date(2026, 1, 1)"),
        ("match", "match = { a = { b = [1, nan] } }", "match.a.b[1] is nan, expected text"),
        ("handler", "", "handler is missing: expected a function, as 'fn'"),
        ("handler", 'handler = ""', "handler is empty"),
        (
            "handler",
            "handler = 3",
            "handler is 3: expected a function, as 'fn' or 'module::fn', or",
        ),
        ("handler", f'handler = "{"f" * 201}"', "expected at most 200 characters, not 201"),
        ("handler", 'handler = "a2a://"', "handler is a2a:// with an empty target"),
        ("handler", 'handler = "worker://"', "handler is worker:// with an empty target"),
        (
            "handler",
            'handler = "smtp://relay"',
            "'smtp', which is not implemented: expected a function",
        ),
        ("handler", 'handler = "a2a://x/y"', "a2a:// is not built in this release"),
        ("handler", 'handler = "pool://q"', "pool:// is not built in this release"),
        ("handler", 'handler = "nope::fn"', "but [exports] has no 'nope'; known are lib"),
        ("retry", "retry = 3", "retry is 3, expected a table"),
        ("retry", "retry = { max = 101 }", "max is 101, expected a whole number >= 0 and <= 100"),
        ("retry", "retry = { max = -1 }", "retry.max is -1"),
        ("retry", "retry = { max = true }", "retry.max is true"),
        ("retry", "retry = { max = 3.0 }", "retry.max is 3.0"),
        ("retry", 'retry = { backoff = "cubic" }', "retry.backoff is 'cubic', expected one of"),
        ("retry", 'retry = { backoff = "cubic", delay = "1s" }', "retry.backoff is 'cubic'"),
        ("retry", 'retry = { backoff = "linear" }', "retry.delay is missing: backoff 'linear'"),
        (
            "retry",
            'retry = { delay = "1s" }',
            "delay belongs to backoff 'linear', not 'svix'",
        ),
        ("retry", 'retry = { backoff = "exponential", base = "1s" }', "retry.cap is missing"),
        (
            "retry",
            'retry = { backoff = "exponential", base = "2s", cap = "1s" }',
            "retry.cap is 1000 ms, expected at least base, which is 2000 ms",
        ),
        ("retry", 'retry = { backoff = "linear", delay = "25h" }', "expected at most a day"),
        ("retry", 'retry = { backoff = "linear", delay = 0 }', "retry.delay is 0, expected a dur"),
        (
            "retry",
            'retry = { backoff = "linear", delay = "1d" }',
            "expected a duration from '1ms' on, such as",
        ),
        ("retry", "retry = { retention_days = 367 }", "retention_days is 367, expected a whole"),
        ("retry", "retry = { backoff = [] }", "retry.backoff is [], expected one of svix"),
        (
            "retry",
            "retry = { retention_days = 0 }",
            "retention_days is 0, expected a whole number >= 1",
        ),
        ("retry", "retry = { maximum = 3 }", "maximum is not a key here; did you mean 'max'?"),
        ("handlers", 'handlers = "x"', "handlers is not a key here; did you mean 'handler'?"),
        ("zzz", "zzz = 1", "zzz is not a key here; known are id, kind, provider, match, "),
    ],
)
def test_one_mistake_is_one_problem_that_says_where_and_what(
    without: str, line: str, problem: str
) -> None:
    [found] = problems(changed(line, without=without))
    trigger_id = "" if without == "id" else " (new-issue)"
    assert found.startswith("harn.toml: [[triggers]] 1")
    assert trigger_id in found
    assert problem in found


@pytest.mark.parametrize(
    "key",
    [
        *("autonomy_tier", "tier", "allow_cleartext"),
        *("window", "dlq_alerts", "dlq-alerts"),
        *("interval", "subject", "slot", "address", "url", "path"),
    ],
)
def test_a_key_of_a_later_release_is_refused_by_name(key: str) -> None:
    [found] = problems(changed(f'{key} = "x"'))
    assert f"{key} is not built in this release" in found


def test_every_mistake_of_a_file_is_told_at_once() -> None:
    found = problems(
        """
        nonsense = 1
        [orchestrator]
        name = "a b"
        drain = { max_items = 1 }
        [exports]
        "bad-name" = "x.py"
        absolute = "/etc/x.py"
        number = 3
        day = 2026-01-01
        [[triggers]]
        id = "a"
        kind = "webhook"
        provider = "github"
        match = {}
        handler = "day::fn"
        [[triggers]]
        id = "a"
        kind = "poll"
        provider = "made-up"
        handler = ""
        """
    )
    places = [problem.removeprefix("harn.toml: ").split(" is ")[0] for problem in found]
    assert places == [
        "nonsense",
        "exports.bad-name",
        "exports.absolute",
        "exports.number",
        "exports.day",
        "orchestrator.drain",
        "orchestrator.name",
        "[[triggers]] 2 (a): match",
        "[[triggers]] 2 (a): handler",
        "[[triggers]] 2 (a): kind 'poll'",
        "[[triggers]] 2 (a): provider 'made-up'",
        "[[triggers]] 2 (a): id",
    ]


def test_the_second_of_two_equal_ids_is_refused_and_the_first_is_named() -> None:
    [found] = problems(TRIGGER + TRIGGER)
    assert found == (
        "harn.toml: [[triggers]] 2 (new-issue): id is 'new-issue', which [[triggers]] 1 "
        "(new-issue) has already"
    )


def test_a_trigger_that_is_no_table_and_tables_that_are_no_triggers_are_refused() -> None:
    [found] = problems("triggers = 3")
    assert "triggers is 3, expected tables written as [[triggers]]" in found
    assert "[[triggers]] 1: is 3, expected a table" in problems("triggers = [3]")[0]


def test_a_manifest_holds_at_most_a_thousand_triggers() -> None:
    tables: list[dict[str, Any]] = [{"id": str(number)} for number in range(1_001)]
    found = parse_manifest({"triggers": tables}, "harn.toml")
    assert found == ("harn.toml: triggers has 1001 entries, expected at most 1000",)


def test_every_provider_names_kinds_that_exist() -> None:
    supported = {kind for kinds in PROVIDERS.values() for kind in kinds}
    assert supported <= {
        "webhook",
        "cron",
        "poll",
        "stream",
        "channel.emit",
        "predicate",
        "a2a-push",
    }
