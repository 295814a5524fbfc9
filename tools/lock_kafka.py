"""Write streams/edge/broker/kafka.lock: the jars of KAFKA_VERSION, resolved once and hashed.

Run it after changing the version: `make lock`.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from jgo.maven import Artifact, MavenContext

from streams.edge.broker.jars import KAFKA_VERSION

LOCK = Path(__file__).parents[1] / "streams/edge/broker/kafka.lock"
HEADER = f"""\
# The class path of the embedded Kafka {KAFKA_VERSION}: coordinate, SHA-256, bytes.
# Written by tools/lock_kafka.py.
"""


def resolve(context: MavenContext) -> list[Artifact]:
    """Return Kafka's server and what it needs, and the binding that makes it log.

    The binding is resolved apart: beside Kafka its parent would override Kafka's own versions.
    """
    kafka = context.create_dependency(f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}")
    roots, rest = context.resolver.resolve([kafka])
    jars = [each.artifact for each in roots + rest if each.scope in {None, "compile", "runtime"}]
    (log4j,) = (jar for jar in jars if jar.artifactId == "log4j-core")
    binding = context.project("org.apache.logging.log4j", "log4j-slf4j-impl")
    return [*jars, binding.at_version(log4j.version).artifact()]


def main() -> None:
    """Resolve, download, hash and write."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(8) as pool:
        jars = resolve(MavenContext(repo_cache=Path(folder)))
        rows = [
            f"{jar.groupId}:{jar.artifactId}:{jar.version} {hashlib.sha256(data).hexdigest()} "
            f"{len(data)}\n"
            for jar, data in zip(
                jars, pool.map(lambda jar: jar.resolve().read_bytes(), jars), strict=True
            )
        ]
    LOCK.write_text(HEADER + "".join(sorted(rows)), "utf-8")


if __name__ == "__main__":
    main()
