"""The results of measurements: one that runs again replaces its own rows, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.__main__ import write
from bench.row import Row, at_least


def _environment(measured_at: str) -> dict[str, Any]:
    return {"measured_at": measured_at, "machine": {"load_before": 0.1}}


def _rows(path: Path) -> list[tuple[str, str, float]]:
    rows = json.loads(path.read_text("utf-8"))["rows"]
    return [(row["name"], row["measured_at"], row["value"]) for row in rows]


def test_a_measurement_replaces_its_own_rows(tmp_path: Path) -> None:
    path = tmp_path / "results" / "latest.json"
    write(path, "hop", _environment("t1"), [Row("hop_p50", "ms", [1, 2, 3])])
    write(path, "engine", _environment("t2"), [Row("fold", "us", [4])])
    write(path, "hop", _environment("t3"), [Row("hop_p50", "ms", [5], at_least(1))])
    assert _rows(path) == [("fold", "t2", 4), ("hop_p50", "t3", 5)]
    assert json.loads(path.read_text("utf-8"))["measured_at"] == "t3"


def test_rows_of_a_measurement_that_is_no_more_go(tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    old = {"rows": [{"name": "x", "measurement": "of old", "measured_at": "t0", "value": 1}]}
    path.write_text(json.dumps(old), "utf-8")
    write(path, "engine", _environment("t1"), [Row("fold", "us", [4])])
    assert _rows(path) == [("fold", "t1", 4)]
