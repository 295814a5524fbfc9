"""Which version was in force: vectors 1-08 and 1-09 of SEMANTICS, and the order of what is told."""

from __future__ import annotations

from random import Random

import pytest

from streams.core.binding_history import Told, version_as_of
from streams.core.wire import LifecycleStateTransition


def _told(at_ms: int, version: int, to_state: str, revision: int, trigger_id: str = "t") -> Told:
    transition: LifecycleStateTransition = {
        "id": trigger_id,
        "binding_key": f"{trigger_id}@v{version}",
        "version": version,
        "provider": "github",
        "kind": "webhook",
        "source": "manifest",
        "handler_kind": "local",
        "definition_fingerprint": f"f{version}",
        "from_state": None,
        "to_state": to_state,
        "namespace": "default",
        "revision": revision,
    }
    return Told(at_ms, transition)


def _installed(*versions: int) -> list[Told]:
    """Versions installed one after the other, a second each; each drains the one before."""
    told: list[Told] = []
    for revision, version in enumerate(versions, start=1):
        at_ms = revision * 1_000
        if revision > 1:
            told.append(_told(at_ms, versions[revision - 2], "draining", revision))
            told.append(_told(at_ms + 300, versions[revision - 2], "terminated", revision))
        told.append(_told(at_ms, version, "registering", revision))
        told.append(_told(at_ms, version, "active", revision))
    return told


@pytest.mark.parametrize(
    ("at_ms", "version"), [(999, None), (1_000, 1), (1_999, 1), (2_000, 2), (9_999, 2)]
)
def test_1_08_as_of_before_and_after_a_swap(at_ms: int, version: int | None) -> None:
    assert version_as_of(_installed(1, 2), "t", at_ms) == version


def test_1_09_the_version_of_a_time_when_the_recorded_one_is_gone() -> None:
    told = _installed(1, 2, 3, 4)
    assert version_as_of(told, "t", 3_500) == 3
    assert version_as_of(told, "t", 1_500) == 1


def test_a_revived_version_is_in_force_again() -> None:
    assert version_as_of(_installed(1, 2, 1), "t", 3_500) == 1


def test_a_trigger_that_drained_has_none_and_others_do_not_matter() -> None:
    told = [*_installed(1), _told(1_500, 1, "draining", 2), _told(1_600, 1, "active", 3, "other")]
    assert version_as_of(told, "t", 1_499) == 1
    assert version_as_of(told, "t", 1_500) is None
    assert version_as_of(told, "other", 1_600) == 1


def test_partitions_may_be_read_in_any_order() -> None:
    # Versions are told in partitions of their own; within one, order is kept.
    told = _installed(1, 2, 3)
    by_version = [[each for each in told if each.transition["version"] == v] for v in (1, 2, 3)]
    Random(7).shuffle(by_version)
    mixed = [each for part in by_version for each in part]
    assert [version_as_of(mixed, "t", at_ms) for at_ms in (1_500, 2_500, 3_500)] == [1, 2, 3]
