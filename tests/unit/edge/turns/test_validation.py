"""Validation commands: what passes, what does not, and that nothing of them is left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from streams.edge.turns.validation import Validating, Verdict, run_validation, validating_of
from streams.settings import Settings
from tests.support.eventually import eventually

PLAIN = Validating(environment={"PATH": os.environ["PATH"]}, timeout_s=60.0)


async def validate(command: str, validating: Validating = PLAIN) -> Verdict:
    return await run_validation(command, validating, cancelled=asyncio.Event())


async def test_8_16_a_command_that_ends_with_0_passes() -> None:
    assert await validate("true") == Verdict(passed=True, exit_code=0)


async def test_a_command_that_ends_otherwise_has_not_passed_and_says_why() -> None:
    verdict = await validate("sh -c 'echo two failed; echo see above >&2; exit 3'")

    assert verdict == Verdict(passed=False, exit_code=3, output="two failed\nsee above")


async def test_there_is_no_shell() -> None:
    verdict = await validate("echo $HOME && false")

    assert verdict == Verdict(passed=True, exit_code=0, output="$HOME && false")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("no-such-program --fast", "'no-such-program' cannot be run: No such file or directory"),
        ("/dev/null", "'/dev/null' cannot be run: Permission denied"),
        ("echo 'open", "the command cannot be read: No closing quotation"),
        (" ", "the command is empty"),
        ("true\0", "'true\\x00' cannot be run: embedded null byte"),
    ],
)
async def test_what_cannot_be_run_has_not_passed(command: str, told: str) -> None:
    assert await validate(command) == Verdict(passed=False, output=told)


async def test_the_end_of_a_long_output_is_kept() -> None:
    verdict = await validate(f"{sys.executable} -c \"print('x' * 5_000_000); print('the end')\"")

    assert verdict.passed
    assert len(verdict.output) == 1_024
    assert verdict.output.endswith("x\nthe end")


async def test_it_has_no_input_and_none_of_our_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_DB_URI", "postgresql://u:s3cret@db/x")
    monkeypatch.setenv("HARN_SASL_PASSWORD", "s3cret")
    monkeypatch.setenv("THEIR_VARIABLE", "kept")

    verdict = await validate("sh -c 'cat; env'", validating_of(Settings()))

    assert "s3cret" not in verdict.output
    assert "THEIR_VARIABLE=kept" in verdict.output.splitlines()


def leftover(folder: Path) -> str:
    """A command whose child outlives it, holds its pipe and deletes a file when it ends."""
    return f"sh -c 'sleep 600 & echo $! > {folder}/pid; {{}}'"


def is_gone(folder: Path) -> bool:
    try:
        os.kill(int((folder / "pid").read_text()), 0)
    except ProcessLookupError:
        return True
    state = Path(f"/proc/{(folder / 'pid').read_text().strip()}/stat").read_text().split()[2]
    return state == "Z"


async def test_what_a_command_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    verdict = await validate(leftover(tmp_path).format("true"))

    assert verdict == Verdict(passed=True, exit_code=0)
    await eventually(lambda: is_gone(tmp_path), "the end of the child")


async def test_a_command_that_takes_too_long_is_ended_whole(tmp_path: Path) -> None:
    short = PLAIN._replace(timeout_s=0.5)

    verdict = await validate(leftover(tmp_path).format("echo begun; wait"), short)

    assert verdict == Verdict(passed=False, output="begun\nit took longer than 0.5 s")
    await eventually(lambda: is_gone(tmp_path), "the end of the child")


async def test_one_that_ignores_sigterm_is_ended_all_the_same(tmp_path: Path) -> None:
    command = f"sh -c 'trap \"\" TERM; echo $$ > {tmp_path}/pid; while true; do sleep 0.1; done'"

    verdict = await validate(command, PLAIN._replace(timeout_s=0.5))

    assert not verdict.passed
    assert is_gone(tmp_path)


async def test_it_ends_when_its_turn_is_cancelled(tmp_path: Path) -> None:
    cancelled = asyncio.Event()
    command = leftover(tmp_path).format("wait")
    running = asyncio.ensure_future(run_validation(command, PLAIN, cancelled=cancelled))
    await eventually((tmp_path / "pid").exists, "its begin")

    cancelled.set()

    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: is_gone(tmp_path), "the end of the child")


async def test_it_ends_when_whoever_waits_for_it_is_cancelled(tmp_path: Path) -> None:
    command = leftover(tmp_path).format("wait")
    running = asyncio.ensure_future(run_validation(command, PLAIN, cancelled=asyncio.Event()))
    await eventually((tmp_path / "pid").exists, "its begin")

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: is_gone(tmp_path), "the end of the child")
