"""The package: what is locked, what is shipped, what the make targets promise."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCK = (ROOT / "requirements.lock").read_text("utf-8")


def locked() -> dict[str, str]:
    """Return the locked version by package name."""
    pins = re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK, re.MULTILINE)
    return dict(pins)


@pytest.mark.parametrize(
    "text",
    [
        *PROJECT["project"]["dependencies"],
        *PROJECT["project"]["optional-dependencies"]["postgres"],
        *PROJECT["dependency-groups"]["dev"],
    ],
)
def test_the_lock_holds_every_requirement_within_its_range(text: str) -> None:
    wanted = Requirement(text)

    assert locked()[canonicalize_name(wanted.name)] in wanted.specifier, "run: make lock"


def test_every_locked_package_has_a_hash_and_no_address() -> None:
    blocks = re.split(r"\n(?=[a-z0-9])", LOCK)

    assert len(blocks) == len(locked())
    assert all("--hash=sha256:" in block for block in blocks)
    assert "://" not in LOCK
    assert "--index-url" not in LOCK


def test_the_wheel_carries_code_schemas_and_the_brokers_lock(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")

    names = set(zipfile.ZipFile(wheel).namelist())

    source = {
        str(path.relative_to(ROOT))
        for package in ("streams", "schemas", "topology")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "streams/edge/broker/kafka.lock" in names
    assert any(name.startswith("schemas/released/") for name in names)
    assert {f"streams/cli/github_triage/{name}" for name in ("harn.toml", "lib.py")} <= names
    assert source <= names
    assert not any(name.startswith(("tests/", "bench/")) for name in names)
    assert any(name.endswith("/entry_points.txt") for name in names)


def test_every_make_target_has_a_line_of_help() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)

    helped = re.findall(r"^([a-z]+):.*## .+\.$", text, re.MULTILINE)

    assert helped == phony.split()
