"""A spool gives back what went in, sequence by sequence, however much there is of it."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.audit.spool import Spool

ENTRY = struct.Struct(">q8s")


@given(st.lists(st.integers(0, 4), max_size=200), st.sampled_from([1, 7, 1_000]))
def test_each_sequence_comes_back_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, turns: list[int], repeat: int
) -> None:
    path = tmp_path_factory.mktemp("spool") / "spool"
    expected: list[list[tuple[int, bytes]]] = [[] for _ in range(5)]
    with Spool(path, ENTRY) as spool:
        sequences = [spool.sequence() for _ in range(5)]
        for at, turn in enumerate(turns):
            for number in range(repeat):
                entry = (at * repeat + number, b"%08d" % turn)
                sequences[turn].add(*entry)
                expected[turn].append(entry)
        stored = [sequence.stored() for sequence in sequences]
    for wanted, found in zip(expected, stored, strict=True):
        assert list(found) == wanted
        assert list(found) == wanted  # as often as needed
        assert len(found) == len(wanted)


def test_a_stored_sequence_can_be_handed_to_another_process(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", ENTRY) as spool:
        sequence = spool.sequence()
        for number in range(5_000):
            sequence.add(number, b"x")
        stored = pickle.loads(pickle.dumps(sequence.stored()))
    assert [number for number, _ in stored] == list(range(5_000))


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with Spool(tmp_path / "spool", ENTRY) as spool, pytest.raises(struct.error):
        spool.sequence().add(1 << 70, b"x")
