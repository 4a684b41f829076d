"""What Kafka says of its keys, so that all clients can be held to it."""

from __future__ import annotations

MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""What the tests of Kafka's Java client expect of its murmur2, before the sign bit is cleared."""


def kafka_partition_of(key: bytes, partitions: int) -> int:
    """The partition to which Kafka's clients send one of these keys."""
    return (MURMUR2[key] & 0x7FFFFFFF) % partitions
