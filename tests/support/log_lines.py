"""Every log line that the code can write, found in its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STREAMS = Path(__file__).parents[2] / "streams"

_LOGGERS = {"_log", "_LOG", "log", "_HANDLER_LOG"}
_LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}


@dataclass(frozen=True, order=True)
class LogLine:
    """One call of a logger: the event's name, its level, and where it stands."""

    event: str
    level: str
    place: str


def log_lines() -> Iterator[LogLine]:
    """Yield every call of a module's logger, one for each event name that it may have."""
    for path in sorted(STREAMS.rglob("*.py")):
        module = ast.parse(path.read_text("utf-8"))
        for call in _calls(module):
            assert isinstance(call.func, ast.Attribute), "as found"
            place = f"{path.relative_to(STREAMS.parent)}:{call.lineno}"
            first = call.args[1 if call.func.attr == "log" else 0]
            for text in _texts(first, module):
                event = re.split(r"[:\s]", text)[0]
                yield LogLine(event, call.func.attr, place)


def _calls(module: ast.Module) -> Iterator[ast.Call]:
    for node in ast.walk(module):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _LEVELS
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in _LOGGERS
        ):
            yield node


def _texts(argument: ast.expr, module: ast.Module) -> Iterator[str]:
    """Yield the texts that an argument may be: itself, or what a name of that kind is set to."""
    if isinstance(argument, ast.Name):
        values = [
            node.value
            for node in ast.walk(module)
            if isinstance(node, ast.Assign)
            and any(isinstance(each, ast.Name) and each.id == argument.id for each in node.targets)
        ]
        for value in values:
            yield from _texts(value, module)
        return
    found = [
        node.value
        for node in ast.walk(argument)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert found, f"line {argument.lineno}: a log line's event is a text"
    yield from found
