"""What a worker does not go by is refused when its manifest is loaded: by name, with a remedy."""

from pathlib import Path

import pytest

from streams.edge.worker.consumer import Consumer
from streams.errors import ManifestError

HEAD = '[exports]\nhandlers = "lib.py"\n'
TRIGGER = (
    '[[triggers]]\nid = "t"\nkind = "webhook"\nprovider = "github"\nmatch = {}\n'
    'handler = "handlers::answer"\n'
)


def consumer_of(folder: Path, text: str) -> Consumer:
    (folder / "lib.py").write_text("def answer(event):\n    return True\n")
    manifest = folder / "harn.toml"
    manifest.write_text(text)
    return Consumer.load(manifest)


@pytest.mark.parametrize(
    ("line", "key", "remedy"),
    [
        ("retry = { max = 3 }", "retry", "HARN_SCHEDULER_MAX_DELIVERIES"),
        ('circuit = "dlq"', "circuit", "let the handler raise"),
        ('circuit_max_park = "1h"', "circuit_max_park", "parking of dispatches"),
        ("budget = { hourly_cost_usd = 1 }", "budget", "where the job is enqueued"),
        ('dedupe_key = "event.kind"', "dedupe_key", "where the job is enqueued"),
        ("filter = \"event.kind == 'a'\"", "filter", "or use `when`"),
        (
            'when = "handlers::answer"\nwhen_budget = { max_cost_usd = 1 }',
            "when_budget.max_cost_usd",
            "only its timeout",
        ),
        (
            'when = "handlers::answer"\nwhen_budget = { tokens_max = 1 }',
            "when_budget.tokens_max",
            "only its timeout",
        ),
    ],
)
def test_a_key_of_dispatches_is_refused(tmp_path: Path, line: str, key: str, remedy: str) -> None:
    with pytest.raises(ManifestError) as caught:
        consumer_of(tmp_path, f"{HEAD}{TRIGGER}{line}\n")
    [problem] = caught.value.problems
    assert problem.startswith(f"{tmp_path / 'harn.toml'}: trigger 't': {key} is not used")
    assert remedy in problem


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('[orchestrator.scheduler]\nstrategy = "drr"\n', "[orchestrator.scheduler]"),
        ("[orchestrator.pumps]\nmax_outstanding = 3\n", "--concurrency"),
        ("[orchestrator]\nbudget = { daily_cost_usd = 1 }\n", "[orchestrator] budget"),
    ],
)
def test_what_the_namespace_says_in_vain_is_refused(tmp_path: Path, table: str, words: str) -> None:
    with pytest.raises(ManifestError, match=r"harn\.toml") as caught:
        consumer_of(tmp_path, f'{HEAD}{TRIGGER}when = "handlers::answer"\n{table}')
    assert words in str(caught.value)


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    two = TRIGGER + "retry = { max = 3 }\n" + TRIGGER.replace('"t"', '"u"') + 'circuit = "off"\n'
    with pytest.raises(ManifestError) as caught:
        consumer_of(tmp_path, HEAD + two)
    assert [each.partition(": ")[2][:11] for each in caught.value.problems] == [
        "trigger 't'",
        "trigger 'u'",
    ]


def test_what_a_worker_goes_by_is_taken(tmp_path: Path) -> None:
    lines = 'when = "handlers::answer"\nwhen_budget = { timeout = "5s" }\ntimeout = "1m"\n'
    found = consumer_of(tmp_path, f"{HEAD}{TRIGGER}{lines}").resolve("t")
    assert not isinstance(found, str)
    assert (found.predicate_timeout_ms, found.timeout_ms) == (5_000, 60_000)


def test_a_trigger_whose_jobs_go_on_to_another_queue_is_not_looked_at(tmp_path: Path) -> None:
    onward = TRIGGER.replace("handlers::answer", "worker://other") + "retry = { max = 3 }\n"
    assert isinstance(consumer_of(tmp_path, HEAD + onward).resolve("t"), str)
