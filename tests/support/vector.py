"""A golden log: records in, outputs and rows out, as one JSON file a person can read.

    {"doc": "...", "stage": "inbox", "partition": 0, "partitions": 1,
     "records": [{"after_ms": 0, "kind": "...", "key": "", "headers": {}, "value": {...}}],
     "outputs": [{"of": 0, "topic": "...", "kind": "...", "key": "...", "value": {...}}],
     "rows": {"s:...": {...}}}

`of` is the place of the record that an output came from.  Bytes are `{"$hex": "..."}`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.stage_log import StageLog

FOLDER = Path(__file__).resolve().parents[1] / "vectors"
FILES = sorted(FOLDER.glob("*/*.json"))


def fold_vector(vector: dict[str, Any]) -> StageLog:
    """Fold a vector's records."""
    log = StageLog(vector["stage"], partition=vector["partition"], partitions=vector["partitions"])
    for record in vector["records"]:
        log.now_ms += record["after_ms"]
        log.add(
            record["kind"],
            from_json(record["value"]),
            key=record.get("key", ""),
            headers=record.get("headers", {}),
        )
    return log


def outcome(log: StageLog) -> dict[str, Any]:
    """What folding came to, as a vector says it."""
    outputs: list[dict[str, Any]] = []
    for place, step in enumerate(log.steps):
        for out in log.outputs_of(step):
            found: dict[str, Any] = {"of": place, "topic": out.topic, "kind": out.kind}
            found["key"] = out.key
            if out.partition is not None:
                found["partition"] = out.partition
            extra = {k: v for k, v in out.headers.items() if k not in {"cause", "fold"}}
            if extra:
                found["headers"] = extra
            outputs.append({**found, "value": as_json(out.value)})
    return {"outputs": outputs, "rows": as_json(log.rows)}


def write(path: Path, vector: dict[str, Any]) -> None:
    """Write a vector with what its records come to now."""
    filled = {**vector, **outcome(fold_vector(vector))}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(filled, indent=1, ensure_ascii=False) + "\n")


def as_json(value: Any) -> Any:
    """Spell bytes as hex."""
    match value:
        case bytes():
            return {"$hex": value.hex()}
        case dict():
            return {key: as_json(each) for key, each in sorted(value.items())}
        case list():
            return [as_json(each) for each in value]
        case _:
            return value


def from_json(value: Any) -> Any:
    """Read what `as_json` wrote."""
    match value:
        case {"$hex": text}:
            return bytes.fromhex(text)
        case dict():
            return {key: from_json(each) for key, each in value.items()}
        case list():
            return [from_json(each) for each in value]
        case _:
            return value
