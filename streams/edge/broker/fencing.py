"""After a kill: let the controller forget that the node was alive, before the node comes back.

A node that was killed and starts again leads its partitions at once, from what the metadata says of
it, and is fenced a moment later, when the session of its former life ends.  Transactions that were
about to be committed are completed in between; Kafka finds no leader for their partitions, takes
them for deleted, and leaves them open: whoever reads only what is committed then waits for ever at
that place.  So the controller runs alone first, fences the node within a second and is stopped.
The node is let in faster, too: it does not wait for the session of its former life.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import psutil

from streams.edge.broker import config, ports, process
from streams.edge.broker.files import BrokerFiles
from streams.edge.broker.progress import Progress, Step

__all__ = ["fence_former_life"]

_TIMEOUT_S = 30.0
_POLL_S = 0.05

_ACTIVE = "Becoming the active controller"
_DECIDED = "Fencing broker"
_COMMITTED = "Processed maybeFenceStaleBroker"
"""Said of each round of that task once its records are in the log, and so is what came before."""
_NOTHING_TO_FENCE_S = 2.0
"""From a controller that is active: after its session, which is a tenth of that, comes nothing."""


def fence_former_life(launch: Sequence[str], files: BrokerFiles, progress: Progress) -> None:
    """See that the metadata do not say of a node that was killed that it is alive.

    Does nothing after an orderly stop and before a first start.  A controller that does not come up
    is no reason not to start: the node then says what is wrong with its directory.

    Args:  launch: the command of the JVM up to its class path, logging to `files.fencing_log`.
    """
    left = process.running_on(files.fencing_properties)
    if left is not None:  # its starter was killed
        process.end(left)
    if not files.was_killed:
        return
    progress(Step("Kafka was killed: settling what it left"))
    (port,) = ports.pick_ports(files.root, 1)
    files.fencing_properties.write_text(config.controller_properties(files.data, port), "ascii")
    files.fencing_log.unlink(missing_ok=True)
    (java, *options), main = launch, [process.MAIN_CLASS, str(files.fencing_properties)]
    command = [java, config.SAYING_WHAT_IS_DONE, *options, *main]
    controller = process.spawn(command, files.console)
    try:
        _await_fence(controller, files)
    finally:
        process.end(controller)


def _await_fence(controller: psutil.Process, files: BrokerFiles) -> None:
    deadline_s = time.monotonic() + _TIMEOUT_S
    active = False
    while time.monotonic() < deadline_s and process.is_alive(controller):
        said = files.fencing_log.read_text("utf-8", "replace") if files.fencing_log.exists() else ""
        _, decided, after = said.partition(_DECIDED)
        if decided and _COMMITTED in after:  # stopped in between, it forgets what it decided
            return
        if not (active or decided) and _ACTIVE in said:
            active = True
            deadline_s = time.monotonic() + _NOTHING_TO_FENCE_S
        time.sleep(_POLL_S)
