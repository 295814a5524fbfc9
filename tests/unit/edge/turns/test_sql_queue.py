"""The queue on either database: one claim at a time, sessions in order, nothing lost."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from streams.edge.turns import sql_queue
from streams.edge.turns.database import Database
from streams.edge.turns.sql_queue import SqlTaskQueue, deliveries_of
from streams.edge.turns.task_queue import ITEM_BYTES_MAX, VISIBILITY_MS, DeliveryId
from streams.errors import TaskQueueFull, TaskQueueUnavailable
from tests.support.sql_turns import Place


def turn(session: str, number: int = 0) -> dict[str, Any]:
    return {"job_id": f"{session}-{number}", "session_id": session}


def taken(queue: SqlTaskQueue) -> tuple[DeliveryId, str]:
    found = queue.get()
    assert found is not None
    return found[0], found[1]["job_id"]


def test_a_claimed_item_is_of_nobody_else_until_its_claim_is_too_old(place: Place) -> None:
    one, other = place.open("w1").queue, place.open("w2").queue
    one.put(turn("a"))
    first, _ = taken(one)

    assert other.get() is None
    place.pass_time(VISIBILITY_MS - 5_000)
    assert other.get() is None
    place.pass_time(6_000)
    again, job = taken(other)

    assert (job, deliveries_of(first), deliveries_of(again)) == ("a-0", 1, 2)
    assert not one.ack(first)
    assert not one.renew(first)
    assert other.ack(again)
    assert one.get_queue_size() == 0


def test_sessions_are_taken_in_the_order_of_their_oldest_items_and_each_one_by_one(
    place: Place,
) -> None:
    queue = place.open().queue
    for job in (turn("a", 1), turn("a", 2), turn("b", 1), turn("a", 3)):
        queue.put(job)

    first, a_1 = taken(queue)
    second, b_1 = taken(queue)
    assert (a_1, b_1, queue.get()) == ("a-1", "b-1", None)

    assert queue.ack(second)
    assert queue.get() is None
    assert queue.ack(first)
    third, a_2 = taken(queue)
    assert (a_2, queue.get()) == ("a-2", None)
    queue.ack(third)
    assert taken(queue)[1] == "a-3"


def test_a_session_goes_on_after_it_had_been_empty(place: Place) -> None:
    queue = place.open().queue
    for number in range(3):
        queue.put(turn("a", number))
        delivery, job = taken(queue)
        assert (job, queue.ack(delivery)) == (f"a-{number}", True)


def test_a_renewed_claim_starts_anew(place: Place) -> None:
    one, other = place.open("w1").queue, place.open("w2").queue
    one.put(turn("a"))
    delivery, _ = taken(one)
    for _ in range(3):
        place.pass_time(VISIBILITY_MS - 5_000)
        assert one.renew(delivery)

    assert other.get() is None
    assert one.ack(delivery)


def test_a_claim_that_is_too_old_but_of_nobody_else_can_be_acked_and_renewed(place: Place) -> None:
    queue = place.open().queue
    queue.put(turn("a"))
    delivery, _ = taken(queue)
    place.pass_time(2 * VISIBILITY_MS)

    assert queue.renew(delivery)
    assert queue.get() is None
    place.pass_time(2 * VISIBILITY_MS)
    assert queue.ack(delivery)


def test_what_is_given_back_comes_again_before_its_session_goes_on(place: Place) -> None:
    queue = place.open().queue
    queue.put(turn("a", 1))
    queue.put(turn("a", 2))
    delivery, _ = taken(queue)

    assert queue.release(delivery)
    assert not queue.ack(delivery)
    assert not queue.release(delivery)
    again, job = taken(queue)
    assert (job, deliveries_of(again)) == ("a-1", 2)

    assert queue.release(again, delay_ms=60_000)
    assert queue.get() is None
    place.pass_time(61_000)
    assert taken(queue)[1] == "a-1"


def test_the_same_delivery_is_acked_once(place: Place) -> None:
    queue = place.open().queue
    queue.put(turn("a"))
    delivery, _ = taken(queue)

    assert [queue.ack(delivery), queue.ack(delivery)] == [True, False]


def test_the_number_of_an_item_is_never_another_ones(place: Place) -> None:
    queue = place.open().queue
    queue.put(turn("a", 1))
    first, _ = taken(queue)
    queue.ack(first)
    queue.put(turn("a", 2))
    second, _ = taken(queue)

    assert not queue.ack(first)
    assert queue.ack(second)


def test_the_depth_counts_what_is_claimed_as_well(place: Place) -> None:
    queue = place.open().queue
    queue.put(turn("a"))
    queue.put(turn("b"))
    taken(queue)

    assert queue.get_queue_size() == 2


def test_what_is_buried_is_kept_and_its_session_goes_on(place: Place) -> None:
    queue = place.open().queue
    queue.put(turn("a", 1))
    queue.put(turn("a", 2))
    delivery, _ = taken(queue)

    assert queue.bury(delivery, "kind is 'x'\0, expected goal_loop")
    assert not queue.bury(delivery, "again")
    assert taken(queue)[1] == "a-2"
    (letter,) = queue.dead_letters()
    assert letter.text == '{"job_id":"a-1","session_id":"a"}'
    assert letter.error == "kind is 'x'\ufffd, expected goal_loop"
    assert letter.deliveries == 1


def test_the_newest_dead_letters_are_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_queue, "DEAD_LETTERS_MAX", 3)
    queue = place.open().queue
    for number in range(5):
        queue.put(turn("a", number))
        queue.bury(taken(queue)[0], f"error {number}")

    assert [letter.error for letter in queue.dead_letters()] == ["error 4", "error 3", "error 2"]
    assert [letter.error for letter in queue.dead_letters(1)] == ["error 4"]


@pytest.mark.parametrize(
    ("text", "error"),
    [("{", "no JSON"), ("[1]", "a JSON list, expected an object"), ("[" * 9_000, "no JSON")],
)
def test_what_others_wrote_into_the_table_and_is_no_item_is_buried_and_told(
    place: Place, text: str, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    turns = place.open()
    turns.queue.put(turn("a", 1))
    turns.queue.put(turn("a", 2))
    spoil = "UPDATE agent_dispatch_queue SET data = ? WHERE is_head = 1"
    turns.database.run(lambda transaction: transaction.change(spoil, (text,)))

    with caplog.at_level(logging.WARNING):
        assert taken(turns.queue)[1] == "a-2"

    assert [line.message for line in caplog.records] == ["turn_unreadable"]
    assert turns.queue.dead_letters()[0].text == text
    assert turns.queue.dead_letters()[0].error.startswith(error)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"session_id": "a", "x": b"1"}, "no JSON object: .*bytes"),
        ({"session_id": "a", "x": float("nan")}, "no JSON object"),
        ({"session_id": "a", "x": "y" * ITEM_BYTES_MAX}, f"{ITEM_BYTES_MAX} at most"),
    ],
)
def test_what_cannot_be_an_item_is_refused(
    place: Place, item: dict[str, Any], problem: str
) -> None:
    queue = place.open().queue

    with pytest.raises(ValueError, match=problem):
        queue.put(item)

    assert queue.get_queue_size() == 0


def test_an_item_at_the_bound_is_taken(place: Place) -> None:
    queue = place.open().queue
    item = {"session_id": "a", "x": ""}
    item["x"] = "y" * (ITEM_BYTES_MAX - len('{"session_id":"a","x":""}'))

    queue.put(item)

    found = queue.get()
    assert found is not None
    assert found[1] == item


@pytest.mark.parametrize("session", ["é" * 900, "a\0b", "\ud800", "Ωmega \U0001f600 '; --", ""])
def test_sessions_of_any_name_keep_their_order(place: Place, session: str) -> None:
    queue = place.open().queue
    items = [{"session_id": session, "job_id": f"{number}"} for number in range(3)]
    for item in items:
        queue.put(item)

    for item in items:
        found = queue.get()
        assert found is not None
        assert found[1] == item
        assert queue.get() is None
        queue.ack(found[0])


@pytest.mark.parametrize("delivery", ["", "1", "1.2.3", "x.1", "1.-1", "9" * 30 + ".1"])
def test_an_id_that_get_never_returned_is_a_mistake(place: Place, delivery: str) -> None:
    queue = place.open().queue

    with pytest.raises(ValueError, match="no delivery of this queue"):
        queue.ack(DeliveryId(delivery))


def test_a_full_queue_refuses_and_takes_again_when_there_is_room(place: Place) -> None:
    database = place.open().database
    queue = SqlTaskQueue(database, consumer="w", depth_max=3)
    for number in range(3):
        queue.put(turn("a", number))

    with pytest.raises(TaskQueueFull, match="holds 3 turns, 3 at most"):
        queue.put(turn("a", 3))
    assert queue.get_queue_size() == 3

    queue.ack(taken(queue)[0])
    queue.put(turn("a", 3))
    with pytest.raises(TaskQueueFull):
        queue.put(turn("a", 4))


def test_a_table_of_another_shape_is_refused_by_name(place: Place) -> None:
    database = place.open().database

    def other(make: Callable[[str], object]) -> None:
        make("DROP TABLE agent_dispatch_queue")
        make("CREATE TABLE agent_dispatch_queue (id INTEGER PRIMARY KEY, data TEXT)")

    database.run(lambda transaction: other(transaction.change))

    with pytest.raises(TaskQueueUnavailable, match="session_key") as caught:
        place.open()
    assert not caught.value.retryable


def test_many_who_open_an_empty_database_at_once_all_find_its_tables(place: Place) -> None:
    start = threading.Barrier(6)

    def opened(number: int) -> int:
        start.wait()
        queue = place.open(f"w{number}").queue
        queue.put(turn("a", number))
        return queue.get_queue_size()

    with ThreadPoolExecutor(6) as pool:
        sizes = list(pool.map(opened, range(6)))

    assert max(sizes) == 6


def test_no_session_is_run_twice_at_once_however_many_put_and_take(place: Place) -> None:
    """Producers and consumers of their own connections: order per session, each item once."""
    sessions, each = [f"s{number}" for number in range(5)], 12
    databases = [place.open(f"w{number}").database for number in range(6)]
    under_way: set[str] = set()
    seen: dict[str, list[int]] = {session: [] for session in sessions}
    together: list[str] = []
    book = threading.Lock()

    def produce(database: Database, mine: list[str]) -> None:
        queue = SqlTaskQueue(database, consumer="p")
        for number in range(each):
            for session in mine:
                queue.put({"session_id": session, "number": number})

    def consume(database: Database) -> None:
        queue = SqlTaskQueue(database, consumer="c")
        while sum(map(len, seen.values())) < each * len(sessions):
            found = queue.get()
            if found is None:
                continue
            delivery, item = found
            with book:
                together.extend(under_way & {item["session_id"]})
                under_way.add(item["session_id"])
                seen[item["session_id"]].append(item["number"])
            with book:
                under_way.discard(item["session_id"])
            assert queue.ack(delivery)

    with ThreadPoolExecutor(6) as pool:
        work = [pool.submit(produce, databases[0], sessions[:3])]
        work += [pool.submit(produce, databases[1], sessions[3:])]
        work += [pool.submit(consume, database) for database in databases[2:]]
        for each_one in work:
            each_one.result()

    assert together == []
    assert seen == {session: list(range(each)) for session in sessions}
    assert SqlTaskQueue(databases[0], consumer="c").get_queue_size() == 0
