"""Write streams/edge/broker/kafka.classes: the classes that a broker at work has loaded.

Run it after changing Kafka's version or the Java that comes with us: `make lock`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from streams.edge.broker import stop_broker
from streams.edge.broker.jars import KAFKA_VERSION

LIST = Path(__file__).parents[1] / "streams/edge/broker/kafka.classes"
HEADER = f"""\
# What the embedded Kafka {KAFKA_VERSION} loads until it works: see streams/edge/broker/archive.py.
# Written by tools/list_kafka_classes.py.
"""


def main() -> None:
    """Let the demo work on a new broker, and write what the JVMs have loaded by its end."""
    with TemporaryDirectory() as folder:
        state_dir, lists = Path(folder, "state"), Path(folder, "lists")
        lists.mkdir()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KAFKA_")},
            "HARN_STATE_DIR": str(state_dir),
            # To every JVM that is started for it; one that maps an archive would say less.
            "JDK_JAVA_OPTIONS": f"-Xshare:off -XX:DumpLoadedClassList={lists}/%p",
        }
        command = [sys.executable, "-m", "streams.cli.main", "demo", "--once"]
        try:
            subprocess.run(command, env=environment, check=True, timeout=300)
        finally:
            stop_broker(state_dir)
        names = {
            line.split(" id:")[0]
            for each in lists.iterdir()
            for line in each.read_text("utf-8").splitlines()
            if not line.startswith(("#", "@")) and "source:" not in line
        }
    LIST.write_text(HEADER + "".join(f"{name}\n" for name in sorted(names)), "utf-8")


if __name__ == "__main__":
    main()
