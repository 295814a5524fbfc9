import pytest

from streams.testing.clock import VirtualClock
from streams.testing.memory_kafka import Fenced, MemoryKafka, header

PLACE = ("t", 0)


@pytest.fixture
def kafka() -> MemoryKafka:
    made = MemoryKafka(VirtualClock(1_000))
    made.create("t", 1)
    made.create("many", 3)
    return made


def values(kafka: MemoryKafka, start: int = 0) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in kafka.fetch("t", 0, start, 100)]


def end(kafka: MemoryKafka) -> int:
    return kafka.spans([PLACE])[PLACE].end


def test_records_get_offsets_and_the_brokers_time(kafka: MemoryKafka) -> None:
    kafka.append("t", b"1", key=b"k", headers=[("h", b"x")])
    kafka.clock.move(5)
    position = kafka.append("t", b"2")
    first, second = kafka.fetch("t", 0, 0, 10)
    assert (first.offset, first.timestamp, first.key, first.headers) == (
        0,
        1_000,
        b"k",
        [("h", b"x")],
    )
    assert (second.offset, second.timestamp, second.key) == (1, 1_005, None)
    assert str(position) == "t/0/1"


def test_a_key_decides_the_partition_unless_one_is_named(kafka: MemoryKafka) -> None:
    by_key = {kafka.append("many", b"", key=b"abc").partition for _ in range(3)}
    assert len(by_key) == 1
    assert kafka.append("many", b"", key=b"abc", partition=2).partition == 2
    with pytest.raises(KeyError, match="many/3: there is no such partition"):
        kafka.append("many", b"", partition=3)
    with pytest.raises(KeyError, match="gone/0: there is no such partition"):
        kafka.append("gone", b"", partition=0)


def test_nothing_of_an_open_transaction_is_seen_nor_what_follows_it(kafka: MemoryKafka) -> None:
    kafka.append("t", b"before")
    producer = kafka.producer("id")
    producer.begin()
    producer.append("t", b"inside")
    kafka.append("t", b"after")
    producer.send_offset("group", "many", 0, 7)
    assert values(kafka) == [(0, b"before")]
    assert end(kafka) == 1
    assert kafka.committed("group", "many", [0]) == {}
    producer.commit()
    assert values(kafka) == [(0, b"before"), (1, b"inside"), (2, b"after")]
    assert end(kafka) == 4  # the commit marker has an offset of its own
    assert kafka.committed("group", "many", [0, 1]) == {0: 7}


def test_a_successor_aborts_what_its_predecessor_left_open(kafka: MemoryKafka) -> None:
    old = kafka.producer("id")
    old.begin()
    old.append("t", b"aborted")
    old.send_offset("group", "many", 0, 7)
    new = kafka.producer("id")
    kafka.append("t", b"after")
    assert values(kafka) == [(2, b"after")]
    assert kafka.committed("group", "many", [0]) == {}
    for call in (old.begin, old.commit, lambda: old.append("t", b"late")):
        with pytest.raises(Fenced, match="id: epoch 0 was fenced by epoch 1"):
            call()
    new.begin()
    new.append("t", b"new")
    new.commit()
    assert values(kafka, 3) == [(3, b"new")]


def test_other_transactions_go_on(kafka: MemoryKafka) -> None:
    one, two = kafka.producer("one"), kafka.producer("two")
    one.begin()
    two.begin()
    one.append("t", b"1")
    two.append("t", b"2")
    two.commit()
    assert values(kafka) == []
    one.commit()
    assert values(kafka) == [(0, b"1"), (1, b"2")]


def test_a_log_is_read_in_the_order_of_appending_over_all_partitions(kafka: MemoryKafka) -> None:
    for number, partition in enumerate((2, 0, 1, 0)):
        kafka.append("many", b"%d" % number, partition=partition)
    assert [record.value for _, record in kafka.history("many")] == [b"0", b"1", b"2", b"3"]


def test_the_auditor_reads_it(kafka: MemoryKafka) -> None:
    for number in range(2_500):
        kafka.clock.move(1)
        kafka.append("t", b"%d" % number)
    lists = list(kafka.read(PLACE, 10, 2_400))
    assert [len(each) for each in lists] == [1_000, 1_000, 390]
    assert lists[0][0].offset == 10
    assert kafka.offset_at(PLACE, 1_101) == 100
    assert kafka.offset_at(PLACE, 99_999) == 2_500
    assert (kafka.partitions("many"), kafka.partitions("gone")) == (3, 0)


def test_an_append_can_arrive_twice_but_not_inside_a_transaction() -> None:
    kafka = MemoryKafka(VirtualClock(), comes_twice=lambda: True)
    kafka.create("t", 1)
    kafka.append("t", b"edge")
    producer = kafka.producer("id")
    producer.begin()
    producer.append("t", b"stage")
    producer.commit()
    assert [value for _, value in values(kafka)] == [b"edge", b"edge", b"stage"]


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="time moves forward"):
        VirtualClock().move(-1)


def test_the_last_header_of_a_name_counts() -> None:
    assert header([("a", b"1"), ("b", b"2"), ("a", b"3")], "a") == "3"
    assert header([], "a") is None
