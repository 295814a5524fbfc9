"""Golden logs: what a fold answered when its vector was written, it answers today.

A difference is a change of behaviour: it needs a new fold version (`topology/stages.py`), and then
`make vectors` writes the files anew.
"""

import json
from pathlib import Path

import pytest

from tests.support.vector import FILES, fold_vector, outcome
from topology import TOPOLOGY


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_fold_answers_as_it_did(path: Path) -> None:
    vector = json.loads(path.read_text())
    log = fold_vector(vector)
    assert outcome(log) == {"outputs": vector["outputs"], "rows": vector["rows"]}
    log.assert_replays([100])
    log.assert_replays([2], reload_at=frozenset(range(1, 50, 2)))


def test_every_kind_that_a_stage_writes_has_a_vector() -> None:
    seen = {
        (output["topic"], output["kind"])
        for vector in (json.loads(path.read_text()) for path in FILES)
        for output in vector["outputs"]
    }
    written = {
        (topic, kind)
        for stage in TOPOLOGY.stages
        for topic, kind in TOPOLOGY.kinds
        if topic in {*stage.sinks, stage.quarantine}
    }
    assert written - seen == NOT_WRITTEN_BY_STAGES


def test_every_kind_that_is_said_of_a_queues_claims_has_a_vector() -> None:
    said = {kind for topic, kind in TOPOLOGY.kinds if topic == "worker.{queue}.claims"}
    seen = {
        output["kind"]
        for vector in (json.loads(path.read_text()) for path in FILES)
        for output in vector["outputs"]
        if output["topic"] == "worker.triage.claims"
    }
    assert seen == said


# What edges append to mailboxes, and what comes with a later release.
_OPERATORS = {
    (stage.source, kind)
    for stage in TOPOLOGY.stages
    for kind in ("tick", "stage_skip", "stage_resume")
    if any(stage.source in other.sinks for other in TOPOLOGY.stages)
}
NOT_WRITTEN_BY_STAGES = {
    *_OPERATORS,
    ("trigger.inbox.envelopes", "revision_published"),
    ("trigger.inbox.envelopes", "source_rejected"),
    ("trigger.dispatches", "invocations_running"),
    ("trigger.dispatches", "invocation_completed"),
    ("trigger.dispatches", "revision_published"),
    ("triggers.registry", "manifest_applied"),
    ("triggers.registry", "trigger_registered"),
    ("triggers.registry", "trigger_drain_requested"),
    ("triggers.registry", "revision_broadcast"),
    ("triggers.registry", "scheduler_policy_proposed"),
    ("trigger.dispatches", "dispatch_cancel_requested"),
    ("trigger.dispatches", "dlq_discard_requested"),
    ("worker.queues", "queue_configured"),
}
