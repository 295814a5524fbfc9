"""One process of the application, as chaos tests run it: roles, a manifest, faults on purpose.

    python tests/support/member.py --roles dispatch --manifest harn.toml [--kill 0.02 --seed 7] ...

Settings come from the environment, as everywhere.
"""

# ruff: noqa: E402

from __future__ import annotations

from streams.collector import look_seldom

look_seldom()  # as `harn` does, before anything is imported

import argparse
import asyncio
import os
import random
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from streams.agents.transaction import BEFORE_OFFSETS
from streams.app import Plan, run
from streams.core.record import Record
from streams.core.state import Answer, Fold, State
from streams.errors import HarnError
from streams.observe import logs
from streams.roles import parse_roles
from streams.settings import Settings
from streams.stages import FOLDS


@dataclass
class Faults:
    """Ends or stops the process at named points inside a transaction."""

    kill_probability: float
    stop_flag: Path | None
    dice: random.Random

    def __call__(self, point: str) -> None:
        if self.stop_flag is not None and point == BEFORE_OFFSETS and self.stop_flag.exists():
            self.stop_flag.unlink()
            sys.stderr.write(f"SELFSTOP {point}\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.kill_probability and self.dice.random() < self.kill_probability:
            sys.stderr.write(f"SELFKILL {point}\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)


def raising_on(fold: Fold, marker: str) -> Fold:
    """The fold, but it raises on a matched event whose id contains `marker`: a bug."""

    def on_record(state: State, record: Record) -> Answer:
        event: Any = record.value.get("event") if isinstance(record.value, dict) else None
        if event is not None and marker in event["id"]:
            message = f"a bug met {event['id']}"
            raise RuntimeError(message)
        return fold.on_record(state, record)

    return replace(fold, on_record=on_record)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--roles", required=True)
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--kill", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stop-flag", type=Path)
    parser.add_argument("--raise-on")
    options = parser.parse_args()
    settings = Settings.from_env()
    logs.configure(settings.log_level, settings.log_format)
    folds = dict(FOLDS)
    if options.raise_on:
        folds["dispatch"] = raising_on(folds["dispatch"], options.raise_on)
    plan = Plan(
        settings=settings,
        roles=parse_roles(options.roles.split(",")),
        manifest=options.manifest,
        folds=folds,
    )
    if options.kill or options.stop_flag:
        faults = Faults(options.kill, options.stop_flag, random.Random(options.seed))
        plan = replace(plan, faults=faults)
    try:
        asyncio.run(run(plan))
    except HarnError as error:
        sys.stderr.write(f"FAILED {error}\n")
        raise SystemExit(error.exit_code) from error


if __name__ == "__main__":
    main()
