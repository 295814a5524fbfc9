"""What the numbers were measured on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import confluent_kafka
import psutil

_PACKAGES = (
    "harn-streams",
    "faust-streaming",
    "aiokafka",
    "confluent-kafka",
    "fastavro",
    "rocksdict",
)


def machine() -> dict[str, str | int | float]:
    """Processor, memory, system."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions(kafka: str) -> dict[str, str]:
    """Python, Kafka, and the packages that do the work."""
    return {
        "python": platform.python_version(),
        "kafka": kafka,
        "librdkafka": confluent_kafka.libversion()[0],
        **{name: version(name) for name in _PACKAGES},
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
