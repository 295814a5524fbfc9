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
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}

# Libraries that narrate; their warnings still matter.
_NOISY = ("faust", "mode", "aiokafka", "aiohttp.access", "asyncio")
_LIBRARIES = (*_NOISY, "harn.kafka")

# What a client does while a cluster elects, loads or rebalances; it tries again by itself.
_PASSES = re.compile(
    "NotLeaderFor|NotCoordinator|CoordinatorNotAvailable|CoordinatorLoadInProgress"
    "|: retrying$|is rebalancing$|Marking the coordinator dead|Ignoring missing topic"
)

_REPEAT_AFTER_S = 10.0
_REMEMBERED_LINES = 256
_TRYING_MS = 45_000
"""Longer than any command waits for an answer, since its process began."""
_VARYING = re.compile(r"\d+")


def logger(name: str, /) -> logging.Logger:
    """The logger of a module; its records carry an event name and `extra` fields."""
    return logging.getLogger(name)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _at(record: logging.LogRecord) -> str:
    moment = dt.datetime.fromtimestamp(record.created, tz=dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class OncePerWhile(logging.Filter):
    """Passes a line, then nothing that differs from it in numbers only for a while.

    A client without a broker reports the same refusal many times a second.
    """

    def __init__(self, applies: Callable[[logging.LogRecord], bool] = lambda _: True) -> None:
        super().__init__()
        self._applies = applies
        self._last_seen_s: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a record is new enough to be told."""
        if not self._applies(record):
            return True
        now_s = time.monotonic()
        line = _VARYING.sub("#", record.getMessage())
        if now_s - self._last_seen_s.get(line, -_REPEAT_AFTER_S) < _REPEAT_AFTER_S:
            return False
        if len(self._last_seen_s) >= _REMEMBERED_LINES:
            self._last_seen_s.clear()
        self._last_seen_s[line] = now_s
        return True


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
        return _visible(line)


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


def _visible(text: str) -> str:
    """Return lines without what moves a cursor or changes colours: errors quote other's texts."""
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable() or each in "\n\t"
        else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


def _shown(value: Any) -> str:  # noqa: ANN401 - whatever a caller logs
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text or "\n" in text else text


def _is_framework(record: logging.LogRecord) -> bool:
    """Whether a library speaks; the mode library does so in our modules' names as well."""
    return record.name.startswith(_LIBRARIES) or str(record.msg).startswith("[^")


def _is_told(record: logging.LogRecord) -> bool:
    """Leave out what libraries say of starting and stopping, and of what passes by itself."""
    if not _is_framework(record) or logging.getLogger().level <= logging.DEBUG:
        return True
    return record.levelno >= logging.WARNING and not _PASSES.search(record.getMessage())


def hush_clients() -> None:
    """Keep what Kafka clients say while they try from people who ran a command.

    The command's own message says it once, and what to do.  Where logs are configured this changes
    nothing, and who follows a log for longer hears of a broker that went away.
    """
    if logging.lastResort is not None and _is_no_first_try not in logging.lastResort.filters:
        logging.lastResort.addFilter(_is_no_first_try)


def _is_no_first_try(record: logging.LogRecord) -> bool:
    return not record.name.startswith("harn.kafka") or record.relativeCreated > _TRYING_MS


def configure(level: str, style: str) -> None:
    """Log to standard error in `style` (text or json), from `level` up."""
    _configure(logging.StreamHandler(sys.stderr), level, style)


def configure_file(level: str, style: str, path: Path) -> None:
    """Log to the end of a file, as `configure` does."""
    _configure(logging.FileHandler(path, encoding="utf-8"), level, style)


def _configure(handler: logging.Handler, level: str, style: str) -> None:
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    handler.addFilter(_is_told)
    handler.addFilter(OncePerWhile(_is_framework))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _NOISY:
        logging.getLogger(name).setLevel(logging.WARNING)
