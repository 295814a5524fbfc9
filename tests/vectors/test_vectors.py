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


def test_every_stage_and_every_kind_of_its_outputs_has_a_vector() -> None:
    seen = {
        (vector["stage"], output["topic"], output["kind"])
        for vector in (json.loads(path.read_text()) for path in FILES)
        for output in vector["outputs"]
    }
    unseen = {
        (stage.name, topic, kind)
        for stage in TOPOLOGY.stages
        for (topic, kind), _ in TOPOLOGY.kinds.items()
        if topic in stage.sinks and (stage.name, topic, kind) not in seen
    }
    assert unseen == NOT_WRITTEN_BY


# A sink's kinds that another stage, an edge or a later release writes.
_LIFECYCLE_OF_DISPATCH = {
    "DispatchStarted",
    "DispatchSucceeded",
    "DispatchFailed",
    "RetryScheduled",
    "DlqMoved",
    "OutcomeRefused",
    "InvocationLost",
    "InvocationReissued",
}
_LIFECYCLE_OF_INBOX = {"EventUnmatched", "EventDeduplicated"}
_RUNTIME = {"tick", "stage_skip", "stage_resume"}
_WORDS = {"invocations_running", "invocation_completed", "revision_published"}
_REGISTRY = {"manifest_applied", "revision_published", "apply_answered", "revision_broadcast"}
NOT_WRITTEN_BY = {
    *(
        ("registry", "triggers.lifecycle", kind)
        for kind in _LIFECYCLE_OF_DISPATCH | _LIFECYCLE_OF_INBOX
    ),
    *(
        ("registry", "triggers.registry", kind)
        for kind in _RUNTIME | {"manifest_applied", "revision_broadcast", "binding_ended"}
    ),
    *(
        ("inbox", "triggers.lifecycle", kind)
        for kind in _LIFECYCLE_OF_DISPATCH | {"state_transition"}
    ),
    *(("inbox", "trigger.dispatches", kind) for kind in _RUNTIME | _WORDS),
    *(("dispatch", "triggers.lifecycle", kind) for kind in _LIFECYCLE_OF_INBOX),
    ("dispatch", "triggers.lifecycle", "state_transition"),
    *(("dispatch", "triggers.registry", kind) for kind in _RUNTIME | _REGISTRY),
    ("dispatch", "trigger.outbox", "dispatch_skipped"),
    ("dispatch", "trigger.outbox", "dispatch_cancelled"),
}
