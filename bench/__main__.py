"""`python -m bench`: measure everything, and write `bench/results/latest.json`.

Runs on the cluster of KAFKA_BOOTSTRAP_SERVERS, else on a broker of its own that is stopped at the
end.  Ends with 1 when a target is missed.
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
)
_RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    """Measure what was asked for."""
    options = _options()
    rows: list[Row] = []
    environment: dict[str, Any] = {}
    for name in options.only or MEASUREMENTS:
        # A broker each: no measurement meets the logs and the groups of another.
        with lab(rounds=options.rounds, quick=options.quick) as place:
            environment = environment or _environment(place)
            measured: list[Row] = importlib.import_module(f"bench.{name}").measure(place)
        for row in measured:
            print(row, flush=True)
        rows += measured
    if options.only or options.quick:
        print("a part only: results are not written")
    else:
        _RESULTS.parent.mkdir(exist_ok=True)
        results = environment | {"rows": [row.as_json() for row in rows]}
        _RESULTS.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
        print(f"written to {_RESULTS}")
    sys.exit(any(row.holds is False for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=MEASUREMENTS, help="measure this; may be repeated"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often (default 3)")
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of the load: numbers mean nothing"
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
