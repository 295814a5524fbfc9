"""The first command that anybody types, and types again: events are shown, the audit is clean."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.broker import PrivateBroker, embedded_settings

pytestmark = pytest.mark.broker


def _demo(state_dir: Path) -> str:
    # One partition: each counts a destination's failures for itself.
    settings = replace(embedded_settings(state_dir), partitions=1)
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli.main", "demo", "--once", "--state-dir", str(state_dir)],
        env={**settings.environment(), "PATH": "/usr/bin:/bin", "HOME": str(state_dir)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_shows_each_kind_of_outcome_however_often_it_is_run(
    private_broker: PrivateBroker,
) -> None:
    private_broker.start()  # and leaves it running, as it found it
    first = _demo(private_broker.state_dir)
    for step in ("DispatchSucceeded", "RetryScheduled", "DlqMoved", "EventDeduplicated"):
        assert step in first
    assert "Where to look next" in first
    # The mirror that is gone fails each time, until nobody asks it for a while.
    assert "has failed too often" not in _demo(private_broker.state_dir)
    assert "has failed too often" in _demo(private_broker.state_dir)
