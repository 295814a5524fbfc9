import pytest

from streams.core import ids
from streams.core.record import Position, Record


def record(offset: int, topic: str = "trigger.dispatches", partition: int = 3) -> Record:
    return Record(topic, partition, offset, 0, b"", "tick", {}, {})


def test_a_position_reads_back_what_it_writes() -> None:
    position = Position("worker.a/b", 3, 1042)
    assert str(position) == "worker.a/b/3/1042"
    assert Position.parse(str(position)) == position


@pytest.mark.parametrize("text", ["", "t", "t/1", "/1/2", "t/x/2", "t/1/-2", "t/1/"])
def test_a_text_that_is_no_position_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="expected topic/partition/offset, such as"):
        Position.parse(text)


def test_an_id_depends_on_position_purpose_and_index_and_nothing_else() -> None:
    first = ids.derived(record(7), "dispatch", 0)
    assert ids.derived(record(7), "dispatch", 0) == first
    others = {
        ids.derived(record(8), "dispatch", 0),
        ids.derived(record(7, partition=4), "dispatch", 0),
        ids.derived(record(7, topic="other"), "dispatch", 0),
        ids.derived(record(7), "claim", 0),
        ids.derived(record(7), "dispatch", 1),
    }
    assert len(others | {first}) == 6
    assert len(first) == 24
    assert set(first) <= set("0123456789abcdef")
