"""A real single-node Kafka from packages alone, for laptops and tests.

Its jars come by their Maven coordinates (`jars`), its Java is a wheel or the machine's own
(`java`); `node` starts, finds and stops it.  Its files live in a state directory (`files`), and it
goes on running when the command that started it ends.
"""

from streams.edge.broker.jars import KAFKA_VERSION
from streams.edge.broker.node import (
    BrokerHandle,
    BrokerStatus,
    broker_status,
    ensure_broker,
    stop_broker,
)
from streams.edge.broker.progress import Progress, Step

__all__ = [
    "KAFKA_VERSION",
    "BrokerHandle",
    "BrokerStatus",
    "Progress",
    "Step",
    "broker_status",
    "ensure_broker",
    "stop_broker",
]
