"""A small number for each job of a queue, a byte a job: an audit meets millions of jobs.

What is called otherwise than our jobs are is remembered by its name.

Source: DESIGN law 9, "Partitions".
"""

from __future__ import annotations

from typing import Final

__all__ = ["JobMarks"]

_BLOCK_BITS: Final = 12
_BLOCK: Final = 1 << _BLOCK_BITS
_OFFSET_DIGITS_MAX: Final = 19
"""What is longer is no offset, and at some length no number to Python either."""


class JobMarks:
    """Marks of jobs by their ids; those that have none have 0."""

    __slots__ = ("_blocks", "_named")

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int], bytearray] = {}
        self._named: dict[str, int] = {}

    def mark(self, job_id: str, mark: int, /) -> None:
        """Give a job a mark, 0 to 255."""
        partition, offset = _place(job_id)
        if offset < 0:
            self._named[job_id] = mark
            return
        block = self._blocks.setdefault((partition, offset >> _BLOCK_BITS), bytearray())
        if not block:
            block.extend(bytes(_BLOCK))
        block[offset & (_BLOCK - 1)] = mark

    def of(self, job_id: str, /) -> int:
        """Return a job's mark."""
        partition, offset = _place(job_id)
        if offset < 0:
            return self._named.get(job_id, 0)
        block = self._blocks.get((partition, offset >> _BLOCK_BITS))
        return 0 if block is None else block[offset & (_BLOCK - 1)]


def _place(job_id: str) -> tuple[str, int]:
    """Return what stands before an id's offset, and that; offset -1 for what is no id of ours."""
    partition, dash, offset = job_id.rpartition("-")
    known = offset.isascii() and offset.isdigit() and (offset == "0" or offset[0] != "0")
    known = known and len(offset) <= _OFFSET_DIGITS_MAX
    return (partition + dash, int(offset)) if known else ("", -1)
