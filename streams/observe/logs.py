"""Structured logs: one line per non-trivial step, an event name and its fields.

    2026-11-28T00:33:09.123Z warning stage_partition_halted stage=dispatch
    position=trigger.dispatches/3/1042

With `HARN_LOG_FORMAT=json` each line is one JSON object.  Values are identifiers and numbers;
bodies and secrets never enter.

Source: STYLE 2.11.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
from pathlib import Path
from typing import Any

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

# Libraries that narrate; their warnings still matter.
_NOISY = ("faust", "mode", "aiokafka", "aiohttp.access", "asyncio")


def logger(name: str, /) -> logging.Logger:
    """The logger of a module; its records carry an event name and `extra` fields."""
    return logging.getLogger(name)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _at(record: logging.LogRecord) -> str:
    moment = dt.datetime.fromtimestamp(record.created, tz=dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class TextFormatter(logging.Formatter):
    """`<time> <level> <event> key=value …`, the traceback on the lines below."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record."""
        fields = " ".join(f"{key}={_shown(value)}" for key, value in _fields(record).items())
        line = (
            f"{_at(record)} {record.levelname.lower():<7} {record.getMessage()} {fields}".rstrip()
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one record."""
        body = {
            "at": _at(record),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **_fields(record),
        }
        if record.exc_info:
            body["traceback"] = self.formatException(record.exc_info)
        return json.dumps(body, default=str, ensure_ascii=False)


def _shown(value: Any) -> str:  # noqa: ANN401 - whatever a caller logs
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text or "\n" in text else text


def _is_ours(record: logging.LogRecord) -> bool:
    """Leave out what the mode library says of starting and stopping in our modules' name."""
    return record.levelno >= logging.WARNING or not str(record.msg).startswith("[^")


def configure(level: str, style: str) -> None:
    """Log to standard error in `style` (text or json), from `level` up."""
    _configure(logging.StreamHandler(sys.stderr), level, style)


def configure_file(level: str, style: str, path: Path) -> None:
    """Log to the end of a file, as `configure` does."""
    _configure(logging.FileHandler(path, encoding="utf-8"), level, style)


def _configure(handler: logging.Handler, level: str, style: str) -> None:
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    handler.addFilter(_is_ours)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
