"""The archive of Kafka's classes: made once, mapped by the JVM, and nothing that a start needs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from streams.edge.broker.archive import class_archive
from streams.edge.broker.config import machine_options
from streams.edge.broker.jars import class_path
from streams.edge.broker.java import Java, find_java
from streams.edge.broker.progress import Step, silent
from streams.settings import Settings

pytestmark = pytest.mark.broker

WRITES = """#!/bin/sh
for word; do
  case $word in -XX:SharedArchiveFile=*) echo made > "${word#*=}" ;; esac
done
"""
REFUSES = "#!/bin/sh\nexit 1\n"


def a_java(folder: Path, script: str) -> Java:
    """A Java that does one thing."""
    executable = folder / "java"
    executable.write_text(script)
    executable.chmod(0o755)
    return Java(executable, 25, "one")


def some_jars(folder: Path) -> list[Path]:
    jars = [folder / f"{name}.jar" for name in ("a", "b")]
    for jar in jars:
        jar.write_bytes(b"jar")
        os.utime(jar, ns=(0, 0))
    return jars


def started_with(java: Java, archive: Path, jars: Sequence[Path], *options: str) -> int:
    """The exit code of a JVM that is given an archive, and ends once it runs."""
    command = [java.executable, *machine_options(java.major), f"-XX:SharedArchiveFile={archive}"]
    command += [*options, "-cp", ":".join(str(jar) for jar in jars), "-version"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode


def test_a_jvm_maps_what_is_made_of_the_real_jars_and_goes_without_what_is_damaged(
    tmp_path: Path,
) -> None:
    settings = Settings.from_env()
    java, jars = find_java(settings), class_path(settings, silent)
    archive = class_archive(java, jars, silent)
    assert archive is not None
    must = "-Xshare:on"
    assert started_with(java, archive, jars, must) == 0
    damaged = tmp_path / "damaged.jsa"
    damaged.write_bytes(archive.read_bytes()[:5_000])
    assert started_with(java, damaged, jars, must) != 0
    assert started_with(java, damaged, jars) == 0
    assert started_with(java, archive, jars[1:], must) != 0
    assert started_with(java, archive, jars[1:]) == 0


def test_it_is_made_once_and_again_when_a_jar_was_fetched_again(tmp_path: Path) -> None:
    java, jars = a_java(tmp_path, WRITES), some_jars(tmp_path)
    said: list[Step] = []
    archive = class_archive(java, jars, said.append)
    assert archive is not None
    assert archive.read_text() == "made\n"
    assert class_archive(java, jars, said.append) == archive
    assert len(said) == 1

    later_ns = archive.stat().st_mtime_ns + 1
    os.utime(jars[1], ns=(later_ns, later_ns))
    assert class_archive(java, jars, said.append) == archive
    assert len(said) == 2


def test_each_java_has_its_own(tmp_path: Path) -> None:
    java, jars = a_java(tmp_path, WRITES), some_jars(tmp_path)
    other = Java(java.executable, 25, "another")
    assert class_archive(java, jars, silent) != class_archive(other, jars, silent)


def test_a_java_that_cannot_make_it_is_asked_once(tmp_path: Path) -> None:
    java, jars = a_java(tmp_path, REFUSES), some_jars(tmp_path)
    said: list[Step] = []
    assert class_archive(java, jars, said.append) is None
    assert class_archive(java, jars, said.append) is None
    assert len(said) == 1
