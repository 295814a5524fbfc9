"""What of a process' log reaches people."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest

from streams.observe import logs


def record(name: str, *, ms: float = 0, **fields: object) -> logging.LogRecord:
    """A warning, said so many milliseconds after the process began."""
    made = logging.makeLogRecord({"name": name, "levelno": logging.WARNING, "msg": "said"})
    made.levelname = "WARNING"
    made.relativeCreated = ms
    made.__dict__.update(fields)
    return made


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What a command shows that configures no log."""
    stream = io.StringIO()
    last = logging.StreamHandler(stream)
    monkeypatch.setattr(logging, "lastResort", last)
    yield stream
    last.close()


def test_what_others_wrote_moves_no_cursor() -> None:
    try:
        raise RuntimeError("boom \x1b[31m\n\tred \x9b2J \x7f")
    except RuntimeError:
        told = record("harn.handler", error="\x1b[2J", exc_info=sys.exc_info())
    line, *traceback = logs.TextFormatter().format(told).split("\n")
    assert line.endswith(r" warning said error=\x1b[2J")
    assert traceback[-2:] == [r"RuntimeError: boom \x1b[31m", "\t" + r"red \x9b2J \x7f"]


def test_a_command_does_not_show_how_its_clients_try(shown: io.StringIO) -> None:
    logs.hush_clients()
    logs.hush_clients()  # as every run in one process does
    assert logging.lastResort is not None
    assert len(logging.lastResort.filters) == 1
    logging.lastResort.handle(record("harn.kafka", ms=30_000))
    assert shown.getvalue() == ""


def test_a_broker_that_goes_away_later_is_told_and_so_is_everything_else(
    shown: io.StringIO,
) -> None:
    logs.hush_clients()
    assert logging.lastResort is not None
    logging.lastResort.handle(record("harn.kafka", ms=60_000))
    logging.lastResort.handle(record("harn.ingest"))
    assert shown.getvalue() == "said\nsaid\n"


def test_where_logs_are_configured_clients_are_heard_from_the_first_moment() -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    noisy = {name: logging.getLogger(name).level for name in ("faust", "mode", "aiokafka")}
    stream = io.StringIO()
    try:
        logs.hush_clients()
        logs.configure("info", "json")
        [handler] = root.handlers
        assert isinstance(handler, logging.StreamHandler)
        handler.setStream(stream)
        handler.handle(record("harn.kafka", code=7))
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        for name, was in noisy.items():
            logging.getLogger(name).setLevel(was)
    line = json.loads(stream.getvalue())
    assert (line["event"], line["logger"], line["code"]) == ("said", "harn.kafka", 7)
