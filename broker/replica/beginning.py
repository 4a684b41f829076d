"""The beginning of a shard: what every member has before the first election, equal on all without a message.

Idea: the ids of cluster, catalogue and order log, and the first entry, follow from the cluster's name and the sorted
ids of its nodes. Each node writes them by itself, and counts entry 1 as committed.

Contract: `begin` may be repeated after a crash at any point of it. It never touches a directory that has begun.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from xxhash import xxh3_128_digest

from ...storage import layout, snapshots
from ...storage.data_directory import METADATA, ORDER
from ...storage.log import LogOptions, LogWriter
from ..raft.messages import ConfState, Entry, EntryKind
from . import checkpoint as checkpoints
from .checkpoint import Checkpoint, LogPlace
from .order_log import OrderLog
from .places import Places
from .replicated import Replicated

if TYPE_CHECKING:
    from ...storage.files import Files

FIRST_TERM = 1


class ShardIds(Struct, frozen=True):
    """The ids of a shard."""

    cluster: bytes
    order: bytes
    catalogue: bytes


def ids_of(cluster: str, nodes: Sequence[int]) -> ShardIds:
    """What follows from the name of a cluster and the ids of its first members."""
    name = f"{cluster}\0{','.join(map(str, sorted(nodes)))}"

    def derived(what: str) -> bytes:
        # Version 4: only ids of partitions are name-based (storage/log_ids.py).
        return uuid.UUID(bytes=xxh3_128_digest(f"{what}\0{name}".encode()), version=4).bytes

    return ShardIds(derived("cluster"), derived("order"), derived("catalogue"))


def has_begun(files: Files, data: str) -> bool:
    """Whether a data directory is that of a member: its first checkpoint is there."""
    return any(snapshots.seq_of(name) is not None for name in files.listdir(f"{data}/{ORDER}"))


def begin(
    files: Files, data: str, ids: ShardIds, configuration: ConfState, *, options: LogOptions | None = None
) -> None:
    """Write catalogue, order log, entry 1 and its checkpoint, durably. Raises StorageFull, Poisoned.

    `configuration`: the first members.
    """
    catalogue = LogWriter.create_or_open(
        f"{data}/{METADATA}", files=files, log_id=ids.catalogue, order=Replicated(Places(0, {})), options=options
    )
    catalogue.close()
    order = OrderLog(f"{data}/{ORDER}", files, log_id=ids.order, options=options)
    body = msgspec.msgpack.encode(configuration)
    try:
        if not order.last_index():
            order.append([Entry(1, FIRST_TERM, body, EntryKind.CHANGE)])
        order.log.sync()
        first = Checkpoint(
            cluster=ids.cluster,
            entry=1,
            term=FIRST_TERM,
            checksum=order.checksum(1),
            commit=1,
            acked=layout.word(order.log.generation, 1),
            configuration=body,
            logs=[LogPlace(ids.catalogue, 0, 0)],
        )
        checkpoints.save(files, order.log.path, ids.order, first)
    finally:
        order.close()
