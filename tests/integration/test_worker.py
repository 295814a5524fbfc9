"""The worker as a process on a real broker: it runs what it is granted, and acks nothing lost."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from streams.edge.topic_reader import topic_names
from tests.support.app_cluster import settings_for_app, write_manifest
from tests.support.broker import PrivateBroker
from tests.support.fleet import Fleet, wait_until
from tests.support.granted import Scheduler, worker_process
from tests.support.worker_edge import body_of

pytestmark = [pytest.mark.broker]

MANIFEST = """
[[triggers]]
id = "quick"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "handlers::quick"

[[triggers]]
id = "broken"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "handlers::broken"

[[triggers]]
id = "long"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "handlers::long"

[[triggers]]
id = "crunch"
kind = "webhook"
provider = "github"
match = { events = ["issues.opened"] }
handler = "handlers::quick"
executor = "process"

[exports]
handlers = "lib.py"
"""

HANDLERS = """
import pathlib

RAN = pathlib.Path(__file__).with_name("ran.txt")


def note(context):
    with RAN.open("a") as file:
        file.write(f"{context.attempt_id}#{context.attempt}\\n")


def quick(event, context):
    note(context)
    return {"event": event.id}


def broken(event):
    raise ValueError("never works")


async def long(event, context):
    note(context)
    return f"ended by {await context.cancelled}"
"""

TTL_S = 6
"""Of claims: a process that does not run for half of it may lose what it has."""


def test_jobs_are_run_answered_and_acked_and_a_stop_gives_the_rest_back(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    manifest = write_manifest(tmp_path / "consumer", MANIFEST, HANDLERS)
    scheduler = Scheduler(settings, "triage", "worker-a")
    options = ("--concurrency", "3", "--claim-ttl", f"{TTL_S}s")
    worker = worker_process(settings, tmp_path, manifest, scheduler, *options)
    with Fleet([worker], supervise=False):
        worker.wait_ready()
        # The queue did not exist: the worker has made it.
        assert {"worker.triage", "worker.triage.claims", "worker.triage.responses"} <= set(
            topic_names(settings)
        )
        heartbeat = scheduler.heartbeat()
        assert (heartbeat["queues"], heartbeat["capacity"]) == (["triage"], 3)
        # One runs all along: its claim is renewed beyond its time while others come and go.
        scheduler.grant(heartbeat, (4, body_of("long", 4)))
        jobs = [("quick", 0), ("broken", 1), ("nobody", 2), ("crunch", 3)]
        scheduler.grant(heartbeat, *((number, body_of(name, number)) for name, number in jobs))
        wait_until("four responses", lambda: len(scheduler.responses) == 4)
        outcomes = {claim: each["outcome"] for claim, each in scheduler.responses.items()}
        assert outcomes == {
            "0.1": "succeeded",
            "1.1": "failed",
            "2.1": "none",
            "3.1": "succeeded",
        }
        assert scheduler.responses["0.1"]["result"] == '{"event":"e0"}'
        wait_until("two acks", lambda: scheduler.acked == {"0.1", "3.1"})

        # What nobody ran is run once the manifest says how, and a bad manifest changes nothing.
        manifest.write_text(MANIFEST + "[orchestrator]\nnamed = 1\n")
        worker.signal(signal.SIGHUP)
        wait_until("it is refused", lambda: worker.said("worker_manifest_not_reloaded"))
        manifest.write_text(MANIFEST.replace('id = "broken"', 'id = "nobody"'))
        worker.signal(signal.SIGHUP)
        wait_until("it is read", lambda: worker.said("worker_manifest_reloaded"))
        manifest.write_text(MANIFEST)
        scheduler.grant(heartbeat, (7, body_of("nobody", 7)))
        wait_until("a response", lambda: "7.1" in scheduler.responses)
        assert scheduler.responses["7.1"]["outcome"] == "failed", "by the handler of `broken`"

        longs = [(number, body_of("long", number)) for number in (5, 6, 8)]
        scheduler.grant(heartbeat, *longs)
        ran = tmp_path / "consumer" / "ran.txt"
        wait_until("three run", lambda: ran.read_text().count("#") == 5)
        wait_until("two renewals", lambda: len(renewals(scheduler, "4.1")) >= 2)
        assert worker.terminate() == 0, worker.tail()
        assert scheduler.released == {"8.1"}
        assert scheduler.acked == {"0.1", "3.1", "4.1", "5.1", "6.1"}
        assert scheduler.responses["4.1"]["result"] == '"ended by shutdown"'
        last = scheduler.said("worker_heartbeat")[-1]
        assert (last["draining"], last["capacity"]) == (True, 0)


def renewals(scheduler: Scheduler, claim_id: str) -> list[dict[str, Any]]:
    """The words that renewed a claim."""
    return [
        each
        for each in scheduler.said("renew_requested")
        if claim_id in {claim["claim_id"] for claim in each["claims"]}
    ]


def test_a_worker_that_stood_still_or_was_killed_acks_nothing_of_what_it_had(
    private_broker: PrivateBroker, tmp_path: Path
) -> None:
    settings = settings_for_app(private_broker.start(), tmp_path)
    manifest = write_manifest(tmp_path / "consumer", MANIFEST, HANDLERS)
    scheduler = Scheduler(settings, "triage", "worker-a")
    options = ("--concurrency", "1", "--claim-ttl", f"{TTL_S}s")
    worker = worker_process(settings, tmp_path, manifest, scheduler, *options)
    ran = tmp_path / "consumer" / "ran.txt"
    with Fleet([worker], supervise=False):
        worker.wait_ready()
        first = scheduler.heartbeat()
        scheduler.grant(first, (1, body_of("long", 1)), (2, body_of("quick", 2)))
        wait_until("one runs", ran.exists)
        worker.stop_the_clock()
        # Granted to an incarnation that will have ended when it is read.
        scheduler.grant(first, (3, body_of("quick", 3)))
        wait_until_claims_have_run_out(scheduler)
        worker.resume()
        second = scheduler.heartbeat(after=first["incarnation"])
        assert second["claims"] == [], "a zombie claims nothing"
        wait_until("the response of what ran", lambda: "1.1" in scheduler.responses)
        assert scheduler.responses["1.1"]["claim_lost"] is True
        # It goes on with what is granted to it now.
        scheduler.grant(second, (2, body_of("quick", 2)), fence=2)
        wait_until("an ack", lambda: scheduler.acked == {"2.2"})
        assert "worker.triage/3" not in ran.read_text()

        scheduler.grant(second, (4, body_of("long", 4)))
        wait_until("it runs", lambda: "worker.triage/4" in ran.read_text())
        worker.kill()
        wait_until("it is dead", lambda: not worker.running)
        worker.start()
        worker.wait_ready(times=2)
        third = wait_until(
            "a third incarnation",
            lambda: [
                each
                for each in scheduler.said("worker_heartbeat")
                if each["incarnation"] not in {first["incarnation"], second["incarnation"]}
            ],
        )[-1]
        assert third["claims"] == []
        scheduler.grant(third, (4, body_of("quick", 4)), fence=2)
        wait_until("an ack by another start", lambda: scheduler.acked == {"2.2", "4.2"})
        assert worker.terminate() == 0, worker.tail()


def wait_until_claims_have_run_out(scheduler: Scheduler) -> None:
    """Wait by the broker's clock, which alone counts: a TTL without a heartbeat has passed."""
    marker = Scheduler(scheduler.settings, scheduler.queue, "clock")
    began_ms = marker.broker_ms()
    wait_until("the claims have run out", lambda: marker.broker_ms() - began_ms > 1_000 * TTL_S)
