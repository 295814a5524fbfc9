"""A fold that raised, and where.

Source: DESIGN "The stage runtime", Failure.
"""

from __future__ import annotations


class FoldFailed(Exception):  # noqa: N818 - it names what happened, as the rest of the tree does
    """A fold raised at the record at `offset`: a bug.  The memory is unusable.

    `index` is the record's place in the batch, `suspects` how many records from there on may be to
    blame: more than one when what they left behind together cannot be written.  `timer` is the key
    of the row whose timer was being fired, None when the record itself was being folded.
    """

    def __init__(
        self,
        offset: int,
        index: int,
        cause: BaseException,
        timer: str | None = None,
        *,
        suspects: int = 1,
    ) -> None:
        """Keep the place; the cause is chained."""
        what = (
            f"offset {offset}"
            if timer is None
            else f"the timer of row {timer!r} at offset {offset}"
        )
        super().__init__(f"fold raised on {what}: {cause!r}")
        self.offset = offset
        self.index = index
        self.timer = timer
        self.suspects = suspects
