"""What was said of keys, and how each of them stands, told apart by a hash of 64 bits.

Both go to files, in one of BUCKETS parts by their hash; one part at a time is in memory when they
are put together.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from streams.audit.spool import Spool
from streams.closable import Closable

__all__ = ["BUCKETS", "Keyed", "Part", "hash_of"]

BUCKETS = 64
"""Parts by hash: of each at most one block is in memory while all are written."""

_KEY_BYTES = 8

Fields = tuple[Any, ...]


class Part(NamedTuple):
    """Of one part, by the hash of a key: all that was said of it, in order, and how it stands."""

    said: dict[int, list[Fields]]
    stands: dict[int, Fields]


class Keyed(Closable):
    """Its `with` block closes and removes the files.

    Args: name: of the files in `folder`.
          said, stands: formats of what is noted of a key, as of `struct`.
    """

    def __init__(self, folder: Path, name: str, *, said: str, stands: str) -> None:
        self._files = ExitStack()
        self._spools = [
            self._files.enter_context(Spool(folder / f"{name}-{what}", struct.Struct(f"<Q{form}")))
            for what, form in (("said", said), ("stands", stands))
        ]
        self._said, self._stands = (
            [spool.sequence() for _ in range(BUCKETS)] for spool in self._spools
        )
        self.moving: set[int] = set()
        """Hashes of keys of which more is said than was noted."""

    def close(self) -> None:
        """Close and remove the files."""
        self._files.close()
        for spool in self._spools:
            spool.path.unlink()

    def say(self, key: str, *fields: Any) -> None:  # noqa: ANN401 - of the format
        """Note the next that is said of a key."""
        hashed = hash_of(key)
        self._said[hashed % BUCKETS].add(hashed, *fields)

    def stand(self, key: str, *fields: Any) -> None:  # noqa: ANN401 - of the format
        """Note how a key stands now."""
        hashed = hash_of(key)
        self._stands[hashed % BUCKETS].add(hashed, *fields)

    def moves(self, key: str) -> None:
        """Note that more is said of `key` than was noted: how it stands is not to be judged."""
        self.moving.add(hash_of(key))

    def parts(self) -> Iterator[Part]:
        """Yield all that was noted."""
        for words, last in zip(self._said, self._stands, strict=True):
            said: defaultdict[int, list[Fields]] = defaultdict(list)
            for key, *fields in words.stored():
                said[key].append(tuple(fields))
            yield Part(said, {key: tuple(fields) for key, *fields in last.stored()})


def hash_of(key: str, /) -> int:
    """Return what stands for a key."""
    return int.from_bytes(blake2b(key.encode(), digest_size=_KEY_BYTES).digest(), "little")
