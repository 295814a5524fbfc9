"""`python -m bench`: measure everything, and write `bench/results/latest.json`.

Each measurement writes its rows when it ends, with the time and the load at which it began, in the
place of those of its last run.  Runs on the cluster of KAFKA_BOOTSTRAP_SERVERS, else on a broker of
its own that is stopped at the end.  Ends with 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import json
import sys
from pathlib import Path
from typing import Any

from bench.lab import Lab, lab
from bench.machine import machine, versions
from bench.row import Row
from streams.edge.broker.jars import KAFKA_VERSION

MEASUREMENTS = (
    "engine",
    "throughput",
    "hop",
    "latency",
    "pipeline",
    "http",
    "recovery",
    "failover",
    "idle",
    "gates",
    "retries",
    "endurance",
    "scheduler",
    "queues",
    "turns",
    "turn_moves",
    "peers",
)
_RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    """Measure what was asked for."""
    options = _options()
    missed = False
    for name in options.only or MEASUREMENTS:
        # A broker each: no measurement meets the logs and the groups of another.
        with lab(rounds=options.rounds, quick=options.quick) as place:
            environment = _environment(place)
            rows: list[Row] = importlib.import_module(f"bench.{name}").measure(place)
        for row in rows:
            print(row, flush=True)
        missed = missed or any(row.holds is False for row in rows)
        if not options.quick:
            write(_RESULTS, name, environment, rows)
    sys.exit(missed)


def write(path: Path, name: str, environment: dict[str, Any], rows: list[Row]) -> None:
    """Put a measurement's rows into the results; those of others stay, in the order of all."""
    before = json.loads(path.read_text("utf-8"))["rows"] if path.is_file() else []
    of_run = {"measurement": name, "measured_at": environment["measured_at"]}
    of_run["load_before"] = environment["machine"]["load_before"]
    kept = [row for row in before if row["measurement"] not in {name} | _gone(before)]
    found = [*kept, *(row.as_json() | of_run for row in rows)]
    found.sort(key=lambda row: MEASUREMENTS.index(row["measurement"]))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(environment | {"rows": found}, indent=2) + "\n", "utf-8")


def _gone(rows: list[dict[str, Any]]) -> set[str]:
    return {row["measurement"] for row in rows} - set(MEASUREMENTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=MEASUREMENTS, help="measure this; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the load: nothing is written"
    )
    return parser.parse_args()


def _environment(place: Lab) -> dict[str, Any]:
    settings = place.settings
    return {
        "measured_at": dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "versions": versions(KAFKA_VERSION),
        "settings": {row.env: row.value for row in settings.describe() if row.value != row.default},
    }


if __name__ == "__main__":
    main()
