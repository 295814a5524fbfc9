"""Where a key lives: the partitioner that every producer of the application uses.

Java's and aiokafka's default, and librdkafka's `murmur2_random`: the key's murmur2 hash without its
sign, modulo the number of partitions.  Decided here as well, so that the in-memory driver and the
auditor can tell where a record belongs.

Source: Kafka `org.apache.kafka.common.utils.Utils.murmur2`; FINDINGS 0.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF


def murmur2(key: bytes, /) -> int:
    """32-bit murmur2 of `key`, unsigned, with Kafka's seed."""
    size = len(key)
    whole = size & ~3
    digest = _SEED ^ size
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        word = (word ^ (word >> _R)) * _M & _MASK
        digest = (digest * _M & _MASK) ^ word
    if whole < size:
        digest = (digest ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    digest = (digest ^ (digest >> 13)) * _M & _MASK
    return digest ^ (digest >> 15)


def partition_of(key: bytes, partitions: int, /) -> int:
    """Partition of a record with that key in a topic of `partitions` partitions."""
    return (murmur2(key) & _POSITIVE) % partitions
