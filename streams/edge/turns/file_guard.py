"""The guard of one host: a locked file for each session that is held.

The kernel frees the lock of a process that ends, however it ends.  The holder removes the file
before it lets go, so that files do not pile up; who has locked a file that is gone starts over.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from streams.edge.turns.session_guard import LocalLocks, name_of, wait_for
from streams.errors import TaskQueueUnavailable

__all__ = ["FileGuard"]

_NAME_BYTES = 16


class FileGuard:
    """Locks in `folder`, which is made when it is not there and must be on a local disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._locks = LocalLocks()

    @contextmanager
    def hold(self, session_id: str, /, *, within_s: float | None = None) -> Iterator[FileHold]:
        """Hold a session on this host; see `SessionGuard.hold`."""
        deadline_s = None if within_s is None else time.monotonic() + within_s
        name = blake2b(name_of(session_id).encode(), digest_size=_NAME_BYTES).hexdigest()
        path = self._folder / f"{name}.lock"
        with self._locks.hold(session_id, deadline_s):
            taken: list[int] = []

            def take() -> bool:
                descriptor = self._taken(path)
                if descriptor is not None:
                    taken.append(descriptor)
                return descriptor is not None

            wait_for(take, session_id, deadline_s, self._locks)
            (descriptor,) = taken
            try:
                yield FileHold()
            finally:
                if _is(path, descriptor):
                    path.unlink(missing_ok=True)
                os.close(descriptor)

    def close(self) -> None:
        """End every wait; see `SessionGuard.close`."""
        self._locks.close()

    def _taken(self, path: Path) -> int | None:
        """Return the descriptor of the locked file, or None when another process has it."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unavailable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(path, descriptor):
                return descriptor
        except BlockingIOError:
            pass
        except OSError as error:
            os.close(descriptor)
            raise self._unavailable(error) from error
        os.close(descriptor)
        return None

    def _unavailable(self, error: OSError) -> TaskQueueUnavailable:
        return TaskQueueUnavailable(
            f"sqlite:{self._folder}",
            f"a session cannot be locked: {error.strerror}",
            retryable=False,
            remedy=f"let user {os.geteuid()} write this folder, or name another one "
            "(HARN_STATE_DIR)",
        )


class FileHold:
    """A session that is held on this host."""

    def lost(self) -> bool:
        """Never: only the end of the process takes the lock away."""
        return False


def _is(path: Path, descriptor: int) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
