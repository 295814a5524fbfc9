"""What `queue ls` tells of the dispatcher is what its rows hold, whatever befell its owners."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from streams.audit.memory_log import MemoryLog
from streams.core.dedupe_counts import DEDUPE_ROW
from streams.edge import dispatcher_report as report_module
from streams.edge.dispatcher_report import dispatcher_report
from streams.testing import Chaos, PipelineDriver
from streams.testing.builders import binding, event
from topology import TOPOLOGY


def often_failing(event: Any, _context: Any) -> None:
    if event.id[-1] in "357":
        raise RuntimeError("not yet")


def busy_driver(chaos: Chaos | None = None) -> PipelineDriver:
    driver = PipelineDriver(handlers={"on_event": often_failing}, chaos=chaos)
    driver.apply([binding(events=["issues.opened"])])
    driver.run_until_idle()
    for number in range(40):
        driver.emit(event(f"trigger_evt_{number % 30}"))
    return driver


def rows_of(driver: PipelineDriver) -> tuple[Counter[str], Counter[str], set[str]]:
    """Return statuses, repeats and names of dispatches as the rows of their owners have them."""
    statuses, repeats, names = Counter[str](), Counter[str](), set[str]()
    for stage in ("inbox", "dispatch"):
        for rows in driver.rows(stage):
            repeats.update(rows.get(DEDUPE_ROW, {}))
            for key, row in rows.items():
                if stage == "dispatch" and key.startswith("d:"):
                    statuses[row["status"]] += 1
                    names.add(f"{row['binding_key']}:{row['event_id']}:{row['attempt']}")
    return statuses, repeats, names


def check(driver: PipelineDriver) -> Counter[str]:
    statuses, repeats, names = rows_of(driver)
    found = dispatcher_report(driver.kafka, driver.codec)
    running = statuses["invoked"] + statuses["running"] + statuses["evaluating"]
    retrying = statuses["waiting"] + statuses["returned"] + statuses["deferred"]
    assert found["dispatcher_in_flight"] == running
    assert found["dispatcher_retry_queue_depth"] == retrying
    assert found["inbox_duplicates_rejected"] == repeats["duplicates"]
    # A storm sends some of them twice.
    written = len(driver.records("trigger.inbox.envelopes", "event_ingested"))
    assert found["inbox_envelopes_written"] == written >= 40
    assert found["inbox_active_entries"] == repeats["active"]
    assert len(found["in_flight_dispatches"]) == running
    assert len(found["pending_retries"]) == retrying
    assert {*found["in_flight_dispatches"], *found["pending_retries"]} == names
    return Counter(in_flight=running, retrying=retrying)


@pytest.mark.parametrize("seed", range(5))
def test_it_says_what_the_rows_hold_at_every_step_of_a_storm(seed: int) -> None:
    driver, met, steps = busy_driver(Chaos.storm(seed)), Counter[str](), 0
    while driver.step():
        steps += 1
        if steps % 7 == 0:
            met |= check(driver)
    met |= check(driver)
    assert met["in_flight"], "some were seen on their way"
    assert met["retrying"], "some were seen waiting"


def test_where_an_earlier_build_wrote_last_the_rows_are_read() -> None:
    driver = busy_driver()
    driver.run_until_idle()
    log = MemoryLog()
    for topic in driver.kafka.topic_names():
        log.create(topic, driver.kafka.partitions(topic))
    places = [
        (TOPOLOGY.stage(name).changelog, partition)
        for name in ("inbox", "dispatch")
        for partition in range(driver.kafka.partitions(TOPOLOGY.stage(name).changelog))
    ]
    for place, span in driver.kafka.spans(places).items():
        for records in driver.kafka.read(place, *span):
            for record in records:
                log.append(place, record.timestamp, record.key, record.value, [])
    told = dispatcher_report(driver.kafka, driver.codec)
    read = dispatcher_report(log, driver.codec)
    of_rows = ("dispatcher_retry_queue_depth", "inbox_fast_path_hits", "inbox_active_entries")
    assert {name: read[name] for name in of_rows} == {name: told[name] for name in of_rows}
    assert read["dispatcher_retry_queue_depth"] == 9
    assert read["pending_retries"] == told["pending_retries"]


def test_counts_are_of_all_however_few_have_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = busy_driver()
    driver.run_until_idle()
    monkeypatch.setattr(report_module, "LISTED_MAX", 4)
    found = dispatcher_report(driver.kafka, driver.codec)
    assert found["dispatcher_retry_queue_depth"] == 9
    assert len(found["pending_retries"]) == 4
    monkeypatch.setattr(report_module, "_LOOKED_AT_MAX", 0)
    found = dispatcher_report(driver.kafka, driver.codec)
    assert found["dispatcher_retry_queue_depth"] == 9
    assert found["pending_retries"] == []
