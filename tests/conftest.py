"""Fixtures that every part of the suite may ask for."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.broker import Kafka, PrivateBroker, shared_kafka
from tests.support.leftovers import nothing_left_in
from tests.support.postgres import Postgres, running_postgres

# A busy machine must not fail a property: what is measured is the benchmark's business.
settings.register_profile(
    "suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("suite")

# A run in the background of a shell is told to ignore Ctrl-C, and so would be all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End although a thread will not: a transaction may hang in the client for ever.

    A broker that is killed in the middle of one does that (librdkafka issue 5456), and at its end
    the interpreter waits for the threads of every pool.
    """
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    session = getattr(reporter, "_session", None)
    if session is None or hasattr(config, "workerinput"):
        return
    if any(
        not each.daemon for each in threading.enumerate() if each is not threading.main_thread()
    ):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(int(session.exitstatus))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run one process more than there are cores: brokers in memory let tests wait."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="session", autouse=True)
def nothing_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Whatever becomes of the run, no broker and no member of it runs on."""
    with nothing_left_in(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture(autouse=True)
def handlers_are_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Modules that a manifest of one test exports, and their folder, do not reach the next one."""
    search_path, known = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = search_path
    examples = Path(__file__).parents[1] / "examples"
    places = (str(tmp_path_factory.getbasetemp()), str(examples))
    for name in sys.modules.keys() - known:
        if str(vars(sys.modules[name]).get("__file__")).startswith(places):
            del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def what_is_loaded_stays() -> None:
    """The collector passes over what was imported: each look at all of it is half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def clients_are_let_go(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves in cycles does not look for its broker while others run.

    A process that folds has its collector look seldom, and a client that nobody ended asks a
    stopped broker for its address many times a second, from threads of its own.
    """
    yield
    if request.node.get_closest_marker("broker") is not None:
        gc.set_threshold(*_COLLECTOR)
        gc.collect()


_COLLECTOR = gc.get_threshold()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """The session's broker.  It must start: a test that needs Kafka fails without one."""
    with shared_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """The session's PostgreSQL."""
    with running_postgres(tmp_path_factory.mktemp("postgres")) as running:
        yield running


@pytest.fixture
def private_broker(tmp_path: Path) -> Iterator[PrivateBroker]:
    """A broker of the test's own, not started yet; whatever is left of it is stopped after."""
    broker = PrivateBroker(tmp_path / "state")
    yield broker
    broker.stop()
