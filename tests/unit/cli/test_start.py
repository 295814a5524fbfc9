"""What a command loads before it does anything: what it needs, and not the whole application."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("streams.app", "faust", "aiohttp", "cel", "jgo", "requests", "psycopg")


def loaded_by(*modules: str) -> set[str]:
    """Which of the heavy ones a process has loaded once it has imported some modules."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split()) & set(HEAVY)


def test_commands_load_only_what_they_need() -> None:
    groups = ("audit", "broker", "main", "orchestrator", "queue_commands", "trigger")
    assert loaded_by(*(f"streams.cli.{group}" for group in groups)) == set()


def test_roles_load_the_application() -> None:
    assert loaded_by("streams.cli.serving") == {"streams.app", "faust", "aiohttp"}
