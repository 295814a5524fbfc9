"""Steps of the toy stage: records put in, and what came out."""

from collections.abc import Sequence
from typing import Any

from streams.audit.log import LogRecord
from streams.core.state import Fold
from tests.support.stage_log import START_MS, Out, StageLog
from tests.support.toy import command, toy_codec, toy_stage

CODEC = toy_codec()


def log(fold: Fold | None = None) -> StageLog:
    return StageLog(toy_stage(fold))


def do(toy: StageLog, op: str, key: str = "", **options: Any) -> list[Out]:
    return toy.add("command", command(op, key, **options))


def texts(outputs: list[Out]) -> list[str]:
    return [output.value["text"] for output in outputs]


def raw(
    offset: int,
    op: str = "emit",
    key: str = "",
    *,
    at_ms: int = START_MS,
    headers: Sequence[tuple[str, Any]] = (),
    **options: Any,
) -> LogRecord:
    value = CODEC.encode("toy_command", command(op, key, **options))
    return LogRecord(offset, at_ms, b"k", value, [("kind", b"command"), *headers])
