"""Agent turns: turns a second, how soon one begins, and whether a long one holds up others.

Workers are processes of their own, as `agent-dispatch-worker` starts them.  Tasks and sessions are
durable before their turns are enqueued, as the API has it.  In the same run a bare client produces
and consumes the same turns.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic

from bench.lab import Lab
from bench.load import Pace
from bench.row import Row, at_least, at_most, percentile
from bench.turn_load import JOBS, Task, TurnLoad, Words, workers
from streams.codec import Codec
from streams.edge.codecs import codec_of
from streams.kafka import make_admin, make_consumer, make_producer
from streams.provision import provision_topics

_SESSIONS = 500
_TURNS, _WARM_UP = 20_000, 6_000
_RATE, _SECONDS = 50, 10
_SLOTS, _FEW_SLOTS = 512, 64
_LONG_S = 14.0


def measure(lab: Lab) -> list[Row]:
    """Throughput and latency with two workers, a long turn beside others, then other workers."""
    provision_topics(lab.settings)
    codec = codec_of(lab.settings)
    bench = _Bench(lab, codec)
    with workers(lab, 2, _SLOTS):
        bench.turns_s(lab.scaled(_WARM_UP))
        two = [bench.turns_s(lab.scaled(_TURNS)) for _ in range(lab.rounds)]
        raw = [bench.raw_turns_s(lab.scaled(_TURNS)) for _ in range(lab.rounds)]
        times = [bench.latencies_ms(lab.scaled(_SECONDS)) for _ in range(lab.rounds)]
        beside = [bench.beside_long_ms(lab.scaled(_SECONDS)) for _ in range(lab.rounds)]
    one = bench.with_workers(1, _SLOTS)
    few = bench.with_workers(2, _FEW_SLOTS)
    p50, p99 = ([percentile(each, share) for each in times] for share in (0.5, 0.99))
    beside_p99 = [percentile(each, 0.99) for each in beside]
    return [
        Row("turns_done", "turns/s", two, at_least(3_000)),
        Row("turns_done_one_worker", "turns/s", one),
        Row("turns_done_64_slots", "turns/s", few),
        Row("turns_raw_loop", "turns/s", raw),
        Row(f"turn_start_p50_at_{_RATE}", "ms", p50, at_most(15)),
        Row(f"turn_start_p99_at_{_RATE}", "ms", p99, at_most(60)),
        Row("turn_start_p99_beside_long_turn", "ms", beside_p99, at_most(60)),
    ]


class _Bench:
    """One lab's turns."""

    def __init__(self, lab: Lab, codec: Codec) -> None:
        self._lab = lab
        self._codec = codec
        self._load = TurnLoad(lab.settings, codec)
        self._words = Words(lab.settings)
        self._jobs = Words(lab.settings, JOBS)

    def turns_s(self, count: int) -> float:
        """Turns a second, from the first one's enqueueing to the last one's end."""
        name = self._lab.new_name("t")
        tasks = [Task(f"{name}-{n}", f"s-{n % _SESSIONS}", "nothing") for n in range(count)]
        self._load.create(tasks)
        self._words.read()
        began_s = time.monotonic()
        for each in tasks:
            self._load.enqueue(each)
        self._load.flush()
        self._words.wait("turn_finished", count)
        return count / (time.monotonic() - began_s)

    def with_workers(self, count: int, slots: int) -> list[float]:
        """The same of other workers, round by round."""
        lab = self._lab
        with workers(lab, count, slots):
            self.turns_s(lab.scaled(_WARM_UP) // 2)
            return [self.turns_s(lab.scaled(_TURNS)) for _ in range(lab.rounds)]

    def latencies_ms(self, seconds: int) -> list[float]:
        """From enqueueing a turn to the start of its agent, at a steady rate."""
        name = self._lab.new_name("l")
        count = _RATE * seconds
        return self._paced(
            [Task(f"{name}-{n}", f"s-{n % _SESSIONS}", "note_start") for n in range(count)]
        )

    def beside_long_ms(self, seconds: int) -> list[float]:
        """The same in one partition, while a turn of another session of it runs throughout."""
        name = self._lab.new_name("b")
        *others, session = self._load.sessions_of(0, _RATE + 1)
        long = Task(f"{name}-long", session, "stay", str(max(_LONG_S * seconds / _SECONDS, 2)))
        self._load.create([long])
        self._words.read()
        self._load.enqueue(long)
        self._load.flush()
        self._words.wait("turn_claimed", 1)
        count = _RATE * seconds
        tasks = [Task(f"{name}-{n}", others[n % len(others)], "note_start") for n in range(count)]
        times = self._paced(tasks)
        ended = [each for each in self._words.read() if each.kind == "turn_finished"]
        assert len(ended) == 0, "the long turn ended before the others"
        self._words.wait("turn_finished", 1)
        return times

    def _paced(self, tasks: Sequence[Task]) -> list[float]:
        self._load.create(tasks)
        self._words.read()
        self._jobs.read()
        pace, sent_ns = Pace(_RATE), dict[str, int]()
        for each in tasks:
            time.sleep(pace.wait_s)
            sent_ns[each.job_id] = time.monotonic_ns()
            self._load.enqueue(each)
        self._load.flush()
        self._words.wait("turn_finished", len(tasks))
        started_ns: dict[str, int] = {}
        while len(started_ns) < len(tasks):
            for word in self._jobs.read():
                value = self._codec.decode(word.value)[1]
                if value["job_id"] in sent_ns and value["status"] == "completed":
                    started_ns[value["job_id"]] = int(value["result"])
        return [(started_ns[job_id] - sent_ns[job_id]) / 1e6 for job_id in sent_ns]

    def raw_turns_s(self, count: int) -> float:
        """Turns a second that a bare client appends to a topic and reads back."""
        settings = self._lab.settings
        topic = self._lab.new_name("raw")
        admin = make_admin(settings)
        for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            future.result()
        consumer = make_consumer(settings, group_id=None)
        consumer.assign([TopicPartition(topic, 0, 0)])
        producer = make_producer(settings, linger_ms=5, queue_buffering_max_messages=2 * count)
        value = b"x" * 200
        began_s = time.monotonic()
        for number in range(count):
            producer.produce(topic, value, f"s-{number % _SESSIONS}")
            if number % 1_000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0, "the turns could not be appended"
        read = 0
        while read < count:
            read += len(consumer.consume(10_000, 0.1))
        consumer.close()
        return count / (time.monotonic() - began_s)
