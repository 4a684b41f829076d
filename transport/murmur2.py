"""Murmur2 of keys, as Kafka's clients choose partitions: 32 bits, seed 0x9747B28C, the sign bit cleared.

Source: Austin Appleby's MurmurHash2; the seed and the cleared bit are those of Kafka's default partitioner.

Idea: many short keys are hashed at once, a word of each at a time; a long one alone, as others would wait for it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
WORD = 0xFFFFFFFF
POSITIVE = 0x7FFFFFFF

SHORT_BYTES = 256
"""The longest key that is hashed together with others."""

PADS = [bytes(count) for count in range(SHORT_BYTES + 5)]


def murmur2(key: bytes) -> int:
    """The hash of one key, 0 to 2**31 - 1."""
    found = SEED ^ len(key)
    end = len(key) & ~3
    for at in range(0, end, 4):
        word = int.from_bytes(key[at : at + 4], "little") * MULTIPLIER & WORD
        word = (word ^ word >> 24) * MULTIPLIER & WORD
        found = found * MULTIPLIER & WORD ^ word
    if end < len(key):
        found = (found ^ int.from_bytes(key[end:], "little")) * MULTIPLIER & WORD
    found = (found ^ found >> 13) * MULTIPLIER & WORD
    return (found ^ found >> 15) & POSITIVE


def murmur2_of_each(keys: Sequence[bytes]) -> np.ndarray:
    """The hash of each key, uint64, shape (len(keys),). Raises TypeError for keys that are no bytes."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    if not len(keys) or lengths.max() <= SHORT_BYTES:
        return _short(keys, lengths)
    found = np.empty(len(keys), np.uint64)
    is_short = lengths <= SHORT_BYTES
    for position in np.flatnonzero(~is_short).tolist():
        found[position] = murmur2(keys[position])
    positions = np.flatnonzero(is_short)
    found[positions] = _short([keys[position] for position in positions.tolist()], lengths[positions])
    return found


def _short(keys: Sequence[bytes], lengths: np.ndarray) -> np.ndarray:
    """Keys of SHORT_BYTES at most: a row of words for each, its end filled with zeros."""
    whole, size = lengths // 4, 4 * int(lengths.max(initial=0) // 4 + 1)
    padded = b"".join([part for key in keys for part in (key, PADS[size - len(key)])])
    words = np.frombuffer(padded, "<u4").reshape(len(keys), size // 4)
    multiplier = np.uint32(MULTIPLIER)
    found = np.uint32(SEED) ^ lengths.astype(np.uint32)
    for at in range(size // 4 - 1):
        word = words[:, at] * multiplier
        word = (word ^ word >> np.uint32(24)) * multiplier
        found = np.where(at < whole, found * multiplier ^ word, found)
    rest = words[np.arange(len(keys)), whole]
    found = np.where(lengths % 4 > 0, (found ^ rest) * multiplier, found)
    found = (found ^ found >> np.uint32(13)) * multiplier
    return ((found ^ found >> np.uint32(15)) & np.uint32(POSITIVE)).astype(np.uint64)
