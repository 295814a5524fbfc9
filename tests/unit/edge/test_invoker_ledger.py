from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.edge.invoker.ledger import OffsetLedger


def test_nothing_is_committed_before_anything_settles() -> None:
    ledger = OffsetLedger()
    ledger.received(7)
    assert ledger.take_commit() is None
    assert ledger.next_offset is None
    assert ledger.first_open == 7


def test_an_offset_waits_for_those_before_it() -> None:
    ledger = OffsetLedger()
    for offset in (7, 8, 9):
        ledger.received(offset)
    ledger.settled(8)
    ledger.settled(9)
    assert ledger.take_commit() is None
    ledger.settled(7)
    assert ledger.take_commit() == 10
    assert ledger.first_open is None


def test_gaps_left_by_transaction_markers_hold_nothing_up() -> None:
    ledger = OffsetLedger()
    ledger.received(3)
    ledger.received(10)
    ledger.settled(3)
    assert ledger.take_commit() == 4
    ledger.settled(10)
    assert ledger.take_commit() == 11


def test_an_offset_is_taken_once_unless_its_commit_failed() -> None:
    ledger = OffsetLedger()
    ledger.received(0)
    ledger.settled(0)
    assert ledger.take_commit() == 1
    assert ledger.take_commit() is None
    ledger.commit_failed()
    assert ledger.take_commit() == 1


@pytest.mark.parametrize("repeated", [4, 5])
def test_an_offset_that_is_not_above_the_last_is_refused(repeated: int) -> None:
    ledger = OffsetLedger()
    ledger.received(5)
    with pytest.raises(ValueError, match=f"offset {repeated} received after 5"):
        ledger.received(repeated)
    ledger.settled(5)
    with pytest.raises(ValueError, match="expected a larger one"):
        ledger.received(repeated)


class SlowLedger:
    """The definition: the offset after the longest settled run of received offsets."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.settled: set[int] = set()

    @property
    def next_offset(self) -> int | None:
        result = None
        for offset in self.received:
            if offset not in self.settled:
                break
            result = offset + 1
        return result


@given(st.data())
def test_the_ledger_equals_its_definition(data: st.DataObject) -> None:
    ledger, slow = OffsetLedger(), SlowLedger()
    offset = -1
    for _ in range(data.draw(st.integers(1, 60))):
        if slow.received and data.draw(st.booleans()):
            settled = data.draw(st.sampled_from(slow.received))
            ledger.settled(settled)
            slow.settled.add(settled)
        else:
            offset += data.draw(st.integers(1, 3))
            ledger.received(offset)
            slow.received.append(offset)
        assert ledger.next_offset == slow.next_offset
        unsettled = [each for each in slow.received if each not in slow.settled]
        assert ledger.first_open == min(unsettled, default=None)
