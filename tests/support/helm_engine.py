"""Helm's own engine in a process of its own: it brings Go's runtime, which tests should not share.

    {"values": …, "release": …}  →  {"files": {template: text}}  or  {"error": text}
    {"lint": values}             →  {"messages": [...]}

One JSON object a line, on standard input and output.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

CHART = Path(__file__).parents[2] / "helm"


class ChartRefused(Exception):  # noqa: N818 - an answer, as a person would read it
    """Helm refused to render, or the schema the values."""


class HelmEngine:
    """Renders and lints the chart of this repository."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def render(self, values: dict[str, Any], *, release: str = "rel") -> dict[str, str]:
        """Return the rendered text by template.  Raises ChartRefused."""
        answer = self._ask({"values": values, "release": release})
        if "error" in answer:
            raise ChartRefused(answer["error"])
        return answer["files"]

    def lint(self, values: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what the linter has to say."""
        return self._ask({"lint": values})["messages"]

    def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._process.communicate(timeout=30)


def _serve() -> None:
    # Only the process that serves loads the library.
    import helm_python  # noqa: PLC0415

    for line in sys.stdin:
        question = json.loads(line)
        if "lint" in question:
            report = helm_python.lint(CHART, question["lint"], strict=True, kube_version="v1.31.0")
            answer: dict[str, Any] = {"messages": report["messages"]}
        else:
            try:
                with helm_python.Chart.load(CHART) as chart:
                    chart.validate_schema(question["values"])
                    files = chart.render(
                        question["values"],
                        name=question["release"],
                        namespace="ns",
                        is_install=True,
                    )
                answer = {"files": files}
            except helm_python.HelmError as error:
                answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
