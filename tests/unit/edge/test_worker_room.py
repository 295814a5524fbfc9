"""What a worker asks for: enough that its slots never stand still, and next to nothing besides."""

from __future__ import annotations

import heapq
from collections import deque

import pytest

from streams.core.record import Position
from streams.edge.worker.held import HeldJob
from streams.edge.worker.room import CLAIMS_MAX, PREFETCH_MAX, Room
from streams.edge.worker.round_trip import ASKED_MAX, ROUND_TRIP_S, ROUND_TRIP_S_MAX, RoundTrip

REQUESTS = "worker.requests"


def held(ended_s: float) -> HeldJob:
    return HeldJob("q", "1", "1.1", 1, None, None, 0.0, ended_s=ended_s)


def place(offset: int) -> Position:
    return Position(REQUESTS, 0, offset)


def tell(trip: RoundTrip, offset: int, ended_s: float, took_s: float) -> None:
    """An ack of a job that ended then, and the grant that came of it."""
    trip.acked([held(ended_s)], place(offset))
    trip.granted(f"{REQUESTS}/0/{offset}/2", ended_s + took_s)


class Run:
    """Slots, jobs that all take as long, and a scheduler whose queue never ends."""

    def __init__(self, slots: int, job_s: float, trip_s: float) -> None:
        self.slots, self.job_s, self.trip_s = slots, job_s, trip_s
        self.room = Room(slots)
        self.now_s = 0.0
        self.events: list[tuple[float, int, str]] = []
        self.number = self.running = self.out = 0
        self.waiting: deque[int] = deque()
        self.idle_s = 0.0
        self.most_waiting = 0

    def at(self, after_s: float, what: str) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now_s + after_s, self.number, what))

    def until(self, end_s: float) -> None:
        """Let time pass, and count anew."""
        self.idle_s, self.most_waiting = 0.0, 0
        while self.events and self.events[0][0] <= end_s:
            at_s, number, what = heapq.heappop(self.events)
            self.idle_s += (at_s - self.now_s) * (self.slots - self.running)
            self.now_s = at_s
            if what == "beat":
                while self.out < self.room.limit:
                    self.out += 1
                    self.at(self.trip_s, "granted")
                self.at(1.0, "beat")
            elif what == "ended":
                self.running -= 1
                self.room.ended(self.job_s)
                if self.out > self.room.limit:
                    self.out -= 1
                else:
                    self.room.round_trip.acked([held(at_s)], place(self.number + 1))
                    self.at(self.trip_s, "replaced")
            else:
                if what == "replaced":
                    self.room.round_trip.granted(f"{REQUESTS}/0/{number}/0", at_s)
                self.waiting.append(number)
            while self.waiting and self.running < self.slots:
                self.waiting.popleft()
                self.running += 1
                self.at(self.job_s, "ended")
            self.most_waiting = max(self.most_waiting, len(self.waiting))


@pytest.mark.parametrize("trip_s", [0.004, 0.02, 0.08])
@pytest.mark.parametrize(("slots", "job_s"), [(4, 0.005), (16, 0.02), (64, 0.1)])
def test_slots_do_not_stand_still_and_little_waits_whatever_the_round_trip(
    slots: int, job_s: float, trip_s: float
) -> None:
    run = Run(slots, job_s, trip_s)
    run.at(0.0, "beat")
    run.until(5.0)
    run.until(10.0)
    assert run.idle_s < 0.03 * 5.0 * slots, "what the slots lost in five seconds"
    assert run.most_waiting <= slots, "what waits is begun within a job's time"


def test_a_slow_job_leaves_nothing_to_wait_and_a_quick_one_hundreds() -> None:
    room = Room(64)
    assert room.limit == 64, "before the first job has ended"
    room.ended(10.0)
    assert room.limit == 64
    room = Room(64)
    room.ended(0.0)
    assert room.limit == 64 + PREFETCH_MAX
    assert room.capacity(busy=room.limit, held=room.limit) == 0
    assert room.capacity(busy=0, held=CLAIMS_MAX - 1) == 1


def test_a_single_slot_takes_one_ahead_only_once_it_would_stand_still_for_half_a_job() -> None:
    for job_s, limit in ((0.041, 1), (0.039, 2)):
        room = Room(1)
        room.ended(job_s)
        tell(room.round_trip, 1, 0.0, 0.02)
        assert room.limit == limit


def test_a_round_trip_is_measured_from_the_jobs_of_an_ack_to_the_grant_that_came_of_it() -> None:
    trip = RoundTrip()
    assert trip.seconds == ROUND_TRIP_S
    trip.acked([held(1.0), held(3.0)], place(7))
    trip.granted(f"{REQUESTS}/0/8/0", 9.0)
    trip.granted("", 9.0)
    assert trip.seconds == ROUND_TRIP_S, "of another record, or of none that is named"
    trip.granted(f"{REQUESTS}/0/7/1", 2.1)
    assert trip.seconds == pytest.approx(0.1)
    trip.granted(f"{REQUESTS}/0/7/1", 5.0)
    assert trip.seconds == pytest.approx(0.1), "an ack counts once"


def test_a_round_trip_follows_what_is_measured_up_to_its_bound() -> None:
    trip = RoundTrip()
    for offset in range(100):
        tell(trip, offset, 0.0, 0.05)
    assert trip.seconds == pytest.approx(0.05)
    for offset in range(100):
        tell(trip, offset, 0.0, 0.01 + 0.01 * (offset % 4))
    assert trip.seconds == pytest.approx(0.04), "what most of them keep to"
    for offset in range(100):
        tell(trip, offset, 0.0, 9.0 if offset % 5 == 0 else 0.02)
    assert trip.seconds == pytest.approx(0.02), "some that took very long say nothing"
    for offset in range(100):
        tell(trip, offset, 0.0, 9.0)
    assert trip.seconds == ROUND_TRIP_S_MAX


def test_acks_that_bring_no_grant_are_forgotten() -> None:
    trip = RoundTrip()
    for offset in range(ASKED_MAX + 1):
        trip.acked([held(0.0)], place(offset))
    trip.granted(f"{REQUESTS}/0/0/0", 0.1)
    assert trip.seconds == ROUND_TRIP_S
    trip.granted(f"{REQUESTS}/0/1/0", 0.1)
    assert trip.seconds == pytest.approx(0.1)


def test_one_quick_job_among_slow_ones_asks_for_no_hundreds() -> None:
    room = Room(2)
    room.ended(1.0)
    room.ended(0.0)
    assert room.limit == 2
