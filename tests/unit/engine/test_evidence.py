from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.engine.evidence import GENESIS, Evidence, row_hash
from streams.engine.fetched import size_of

PIECE = st.binary(max_size=3)
HEADERS = st.lists(st.tuples(st.text("ab", max_size=2), st.none() | PIECE), max_size=2)


@dataclass(frozen=True)
class Raw:
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


RAWS = st.builds(
    Raw, st.integers(0, 2), st.integers(-1, 1), st.none() | PIECE, st.none() | PIECE, HEADERS
)
OUTPUTS = st.tuples(
    st.sampled_from([b"t\0k\0", b"t\0kk\0"]), st.none() | st.just(1), PIECE, PIECE, PIECE, PIECE
)
ROWS = st.tuples(PIECE.filter(bool), st.none() | PIECE)
BATCH = st.tuples(
    st.lists(RAWS | OUTPUTS, max_size=3), st.lists(ROWS, max_size=2, unique_by=lambda row: row[0])
)


def evidence_of(batch: Any) -> bytes:
    happened, rows = batch
    evidence = Evidence()
    for each in happened:
        if isinstance(each, Raw):
            evidence.add_input(each)
        else:
            evidence.add_output(*each)
    evidence.add_rows([(row, None) for row in rows], GENESIS)
    return bytes(evidence.packed())


@given(BATCH, BATCH)
def test_different_batches_leave_different_evidence(first: Any, second: Any) -> None:
    assert (evidence_of(first) == evidence_of(second)) == (first == second)


def test_nothing_can_be_moved_over_a_boundary() -> None:
    batches = [
        ([Raw(0, 0, b"ab", b"c", [])], []),
        ([Raw(0, 0, b"a", b"bc", [])], []),
        ([Raw(0, 0, b"", b"abc", [])], []),
        ([Raw(0, 0, None, b"abc", [])], []),
        ([Raw(0, 0, b"abc", None, [])], []),
        ([Raw(0, 0, b"abc", b"", [])], []),
        ([Raw(0, 0, b"", b"", [("a", b"bc")])], []),
        ([Raw(0, 0, b"", b"", [("ab", b"c")])], []),
        ([Raw(0, 0, b"", b"", [("a", b""), ("b", b"c")])], []),
        ([Raw(0, 0, b"", b"", [("abc", None)])], []),
        ([Raw(0, 0, b"", b"", [("abc", b"")])], []),
        ([], [(b"a", b"bc")]),
        ([], [(b"ab", b"c")]),
        ([], [(b"abc", b"")]),
        ([], [(b"abc", None)]),
    ]
    assert len({evidence_of(batch) for batch in batches}) == len(batches)


def test_the_size_of_a_record_is_that_of_all_its_parts() -> None:
    raw = Raw(0, 0, b"key", b"value", [("kind", b"x"), ("null", None)])
    assert size_of(raw) == 3 + 5 + 4 + 1 + 4
    assert size_of(Raw(0, 0, None, None, [])) == 0


@given(RAWS)
def test_the_piece_of_an_input_is_no_smaller_than_the_input(raw: Raw) -> None:
    assert Evidence().add_input(raw) >= size_of(raw)


def test_an_input_is_the_array_that_an_auditor_elsewhere_would_write() -> None:
    evidence = Evidence()
    evidence.add_input(Raw(7, 1_000, b"k", None, [("kind", b"x")]))
    assert evidence.packed() == bytes.fromhex("96 01 07 cd03e8 c4016b c0 91 92 a46b696e64 c40178")


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_pieces_follow_one_another_however_many_they_are(count: int) -> None:
    evidence = Evidence()
    raw = Raw(7, 1_000, b"k", None, [("kind", b"x")])
    evidence.add_input(raw)
    first = bytes(evidence.packed())
    for _ in range(count - 1):
        evidence.add_input(raw)
    assert evidence.packed() == first * max(count, 1)


@given(st.dictionaries(PIECE, PIECE), st.randoms())
def test_the_state_hash_depends_on_the_rows_and_not_on_their_history(
    rows: dict[bytes, bytes], random: Any
) -> None:
    keys = list(rows)
    random.shuffle(keys)
    state_hash = GENESIS
    for key in keys:  # each is written, changed, and changed back
        for before, after in ((None, b"?"), (b"?", rows[key])):
            state_hash = Evidence().add_rows([((key, after), before)], state_hash)
    expected = sum(row_hash(key, value) for key, value in rows.items()) % (1 << 256)
    assert int.from_bytes(state_hash) == expected
    for key in keys:
        state_hash = Evidence().add_rows([((key, None), rows[key])], state_hash)
    assert state_hash == GENESIS


def test_the_chain_commits_to_the_entry_and_to_what_happened() -> None:
    chains = set()
    for entry in (b"", b"a", b"b"):
        for raws in ([], [Raw(0, 0, b"", b"", [])]):
            evidence = Evidence()
            for raw in raws:
                evidence.add_input(raw)
            chains.add(evidence.chain(entry))
    assert len(chains) == 6
    assert {len(chain) for chain in chains} == {32}
