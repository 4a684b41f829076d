"""Starts a member: opens its order, and puts engine, Raft core and logs together.

Contract: the shard has begun in the directory (beginning.py), which the caller has locked. Raises ReplicaDamaged where
something is gone that was durable; nothing is changed then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ...storage.data_directory import ORDER
from ...storage.layout import PROMISES
from ..engine.node import Node
from ..raft.node import RaftNode
from ..raft.state import RaftOptions
from .directories import Directories
from .errors import ReplicaDamaged
from .group_storage import GroupStorage
from .held_answers import HeldAnswers
from .installing import install
from .opening import OpenedOrder, open_order
from .order_checkpoints import ENTRIES, SEGMENTS, OrderCheckpoints
from .order_log import OrderLog
from .replica import Publish, Replica, Send
from .replicated import Replicated

if TYPE_CHECKING:
    from ...storage.files import Files
    from ...storage.log import LogOptions
    from ...storage.promises import Promises
    from ..engine.ports import NodeConfig, Now, Port, Randomness
    from .beginning import ShardIds
    from .directories import KnownDirectories
    from .member_logs import MemberLogs


def open_files(
    files: Files, data: str, ids: ShardIds, options: LogOptions | None = None, suspect: Collection[str] = ()
) -> OpenedOrder:
    """Recover the order and every log. Raises ReplicaDamaged, StorageFull, Poisoned.

    `suspect`: paths of logs with a sync that never answered (see `LogWriter.open`).
    """
    if not files.exists(f"{data}/{PROMISES}"):
        raise ReplicaDamaged(f"{data}/{PROMISES} is gone: this node may have voted where it cannot tell any more")
    install(files, data, ids.order, options)
    path = f"{data}/{ORDER}"
    order = OrderLog(path, files, log_id=ids.order, options=options, suspect=path in suspect)
    try:
        return open_order(files, data, order, options, suspect)
    except BaseException:
        order.log.close(clean=False)
        raise


def start(
    opened: OpenedOrder,
    store: Callable[[Replicated], MemberLogs],
    port: Port,
    *,
    promises: Promises,
    known: KnownDirectories,
    randomness: Randomness,
    config: NodeConfig,
    options: RaftOptions,
    now: Now,
    send: Send,
    on_role: Callable[[int, int], None] = lambda leader, term: None,
    publish: Publish = lambda logs: None,
    checkpoint_every: int = ENTRIES,
    order_segments: int = SEGMENTS,
) -> Replica:
    """A member over files that were opened. `store` makes the node's store over the order of its logs.

    `options.applied` is set here. Raises what opening a node does.
    """
    replicated = Replicated(opened.places)
    storage = GroupStorage(opened.order, promises, opened.checkpoint, opened.members.configuration)
    directories = Directories(known, opened.members, opened.checkpoint.entry)
    core = RaftNode(replace(options, applied=opened.places.entry), storage)
    logs = store(replicated)
    logs.places = opened.places
    answers = HeldAnswers(port)
    lead: list[Replica] = []
    node = Node(
        logs,
        answers,
        randomness=randomness,
        config=config,
        now=now,
        may_lead=lambda: bool(lead) and lead[0].may_lead(),
    )
    checkpoints = OrderCheckpoints(
        opened.order.log.files,
        logs,
        opened.checkpoint,
        opened.members,
        every=checkpoint_every,
        keep=order_segments,
    )
    replica = Replica(
        node,
        core,
        order=opened.order,
        places=opened.places,
        replicated=replicated,
        storage=storage,
        answers=answers,
        checkpoints=checkpoints,
        directories=directories,
        send=send,
        on_role=on_role,
        publish=publish,
    )
    lead.append(replica)
    return replica
