"""What a fold writes, and in which order, is the same in every process: the hash chain knows both.

Texts hash differently in each process, so that an order taken from a set shows here.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]

_FOLD_ALL = """
import json
from tests.support.scheduler_log import SchedulerLog
from tests.support.vector import FILES, fold_vector

for path in FILES:
    log = fold_vector(json.loads(path.read_text()))
    print(path.stem, log.memory.position.chain.hex())

log = SchedulerLog(strategy="drr", weights={"a": 3}, max_concurrent_per_key=3)
log.ready(*"abcdefgh" * 6)
for number in range(4):
    log.beat(f"worker-{number}", 6)
log.ack("0.1", "1.1", "2.1", "3.1", worker="worker-0")
log.beat("worker-1", 6, incarnation="another")
log.policy(strategy="drr", fairness_key="binding")
log.now_ms += 400_000
log.tick()
log.purge()
print("scheduler", log.memory.position.chain.hex())
"""


def _chains(seed: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _FOLD_ALL],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_chains_do_not_depend_on_how_texts_hash() -> None:
    first = _chains("1")
    assert len(first) > 10
    for seed in ("2", "3"):
        assert _chains(seed) == first
