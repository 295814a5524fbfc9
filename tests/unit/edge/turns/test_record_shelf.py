"""The shelf against a dictionary: what it keeps, how it is listed, and what does not fit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.edge.turns.record_shelf import Gone, RecordShelf, Shelved
from streams.errors import TaskQueueUnavailable

KINDS = ("agent_goal", "agent_job")


def shelved(key: str, offset: int, kind: str = "agent_goal", **changes: object) -> Shelved:
    row = Shelved(kind, key, "s", "pending", offset, 0, offset, f"{key}@{offset}".encode())
    return row._replace(**changes)


_CHANGES = st.one_of(
    st.builds(
        shelved,
        st.sampled_from("abcd"),
        st.integers(0, 20),
        session_id=st.sampled_from(("s", "t")),
        status=st.sampled_from(("pending", "completed")),
        updated_at_ms=st.integers(0, 5),
        partition=st.integers(0, 1),
    ),
    st.builds(Gone, st.sampled_from("abcd"), st.integers(0, 1), st.integers(0, 20)),
)


@given(st.lists(_CHANGES, max_size=30))
def test_it_keeps_what_a_dictionary_would(changes: list[Shelved | Gone]) -> None:
    shelf, model = RecordShelf(), dict[str, Shelved]()
    for change in changes:
        shelf.apply([change])
        known = model.get(change.key)
        if known and (known.partition != change.partition or known.offset > change.offset):
            continue
        if isinstance(change, Shelved):
            model[change.key] = change
        elif known:
            del model[change.key]

    for key in "abcd":
        found = model.get(key)
        assert shelf.get("agent_goal", key) == (found and found.value)
    newest = sorted(model.values(), key=lambda each: (each.updated_at_ms, each.key), reverse=True)
    for session in (None, "s"):
        for status in (None, "completed"):
            expected = [
                each.value
                for each in newest
                if session in (None, each.session_id) and status in (None, each.status)
            ]
            for offset in range(3):
                assert expected[offset : offset + 2] == shelf.newest(
                    "agent_goal", session_id=session, status=status, limit=2, offset=offset
                )


@given(st.lists(_CHANGES, max_size=30), st.integers(0, 30))
def test_where_batches_are_cut_does_not_matter_within_a_partition(
    changes: list[Shelved | Gone], cut: int
) -> None:
    # As a topic is read: offsets rise.
    rising = [change._replace(partition=0, offset=offset) for offset, change in enumerate(changes)]
    one, two = RecordShelf(), RecordShelf()
    one.apply(rising)
    two.apply(rising[:cut])
    two.apply(rising[cut:])

    assert one.newest("agent_goal", limit=10) == two.newest("agent_goal", limit=10)


def test_large_batches_are_taken_and_removed_whole() -> None:
    shelf = RecordShelf()
    rows = [shelved(f"k{number:04}", number) for number in range(1_000)]
    shelf.apply(rows)
    assert shelf.newest("agent_goal", limit=2_000) == [row.value for row in reversed(rows)]

    shelf.apply([Gone(row.key, 0, 1_000) for row in rows[:-1]])
    assert shelf.newest("agent_goal", limit=2_000) == [rows[-1].value]


def test_what_a_later_reading_does_not_meet_is_gone() -> None:
    shelf = RecordShelf()
    shelf.apply([shelved("a", 1), shelved("b", 2), shelved("w", 3, "fleet_worker")], 1)
    shelf.apply([shelved("b", 2)], 2)
    shelf.sweep(KINDS, 2)

    assert shelf.newest("agent_goal", limit=9) == [b"b@2"]
    assert shelf.get("fleet_worker", "w") == b"w@3"


def test_kinds_share_no_keys() -> None:
    shelf = RecordShelf()
    shelf.apply([shelved("a", 1, "agent_goal")])
    shelf.apply([shelved("a", 2, "agent_job")])

    assert (shelf.get("agent_goal", "a"), shelf.get("agent_job", "a")) == (b"a@1", b"a@2")


def test_what_does_not_fit_is_refused_whole_and_what_goes_makes_room() -> None:
    shelf = RecordShelf(bytes_max=200_000)
    shelf.apply([shelved("a", 1, value=b"x" * 100_000)])
    large = [shelved("b", 2), shelved("c", 3, value=b"x" * 100_000)]
    with pytest.raises(TaskQueueUnavailable, match="at most 200000 bytes"):
        shelf.apply(large)
    assert shelf.newest("agent_goal", limit=9) == [b"x" * 100_000]

    shelf.apply([Gone("a", 0, 4), *large])
    assert shelf.newest("agent_goal", limit=9) == [b"x" * 100_000, b"b@2"]


def test_without_a_disk_everybody_is_told() -> None:
    shelf = RecordShelf()
    shelf.close()
    shelf.close()
    for ask in (
        lambda: shelf.get("agent_goal", "a"),
        lambda: shelf.newest("agent_goal", limit=1),
        lambda: shelf.apply([shelved("a", 1)]),
        lambda: shelf.sweep(KINDS, 1),
    ):
        with pytest.raises(TaskQueueUnavailable, match="temporary files"):
            ask()
