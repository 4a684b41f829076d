"""Batches that no broker would acknowledge, put into its log all the same: what an older version, or damage, has left.

`hidden_codec` makes this process one in which the library of a codec is not installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.broker.engine.logs.partition import Partition
from penstock.broker.engine.producing.proposing import produce
from penstock.clients.memory_broker import MemoryBroker
from penstock.storage import codecs
from penstock.storage.batch import Codec, ColumnId, Kind, assemble, parse
from penstock.storage.columns import pieces
from penstock.storage.encoding import lay_out
from penstock.storage.memory_files import MemoryFiles

NOT_ZSTD = bytes(lay_out(Kind.RECORDS, 2, [(ColumnId.VALUE, Codec.ZSTD, b"no zstd", 18)], 0, 0, 0))
"""Two records whose values cannot be inflated."""


def with_headers(*packed: bytes) -> bytes:
    """Records "0", "1" ... with headers as they are packed."""
    values = pieces([b"%d" % number for number in range(len(packed))])
    return bytes(
        assemble(Kind.RECORDS, len(packed), [(ColumnId.VALUE, 0, values), (ColumnId.HEADERS, 0, pieces(packed))])
    )


class Unheard:
    """Waits for a commit and does nothing."""

    def committed(self, place: Any) -> None:
        """See Waiter."""

    def failed(self, error: Exception) -> None:
        """See Waiter."""
        raise error


def append(partition: Partition, batch: bytes) -> None:
    """Append a batch as it is."""
    produce(partition, parse(batch), Unheard())  # type: ignore[arg-type]


def append_to(broker: MemoryBroker, topic: str, batch: bytes, partition: int = 0) -> None:
    """The same over a broker in memory, committed."""
    local = broker._broker
    with local.lock:
        append(local._node._registry.topics.by_name[topic].partition(partition), batch)
        local._pending = True
    local.drive(None)


def flip(files: MemoryFiles, needle: bytes, at: int = 0) -> None:
    """Damage what stands `at` bytes behind the first `needle` in a segment."""
    for name, content in files.contents.items():
        place = content.data.find(needle) if name.endswith(".segment") else -1
        if place >= 0:
            content.data[place + at] ^= 1
            return
    raise AssertionError(f"{needle!r} stands in no segment")


@contextmanager
def hidden_codec(name: str = "zstandard") -> Iterator[None]:
    """As where the library is not installed."""
    before = sys.modules.pop(name, None)
    sys.modules[name] = None  # type: ignore[assignment]
    codecs._functions.cache_clear()
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
        codecs._functions.cache_clear()
