"""Starts a member: opens its order, and puts engine, Raft core and logs together.

Contract: the shard has begun in the directory (beginning.py), which the caller has locked. Raises ReplicaDamaged where
something is gone that was durable; nothing is changed then but that the damage is noted, and the member recovers
(recovering.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from ...storage.data_directory import METADATA, ORDER
from ...storage.errors import Corrupt, InvalidBatch, InvalidTopic, StorageFull, is_damage
from ...storage.layout import PROMISES
from ..engine.node import Node
from ..raft.node import RaftNode
from ..raft.state import RaftOptions
from . import damage
from .beginning import has_begun
from .clocks import MemberClocks
from .directories import Directories
from .errors import PromisesLost, ReplicaDamaged
from .group_storage import GroupStorage
from .held_answers import HeldAnswers
from .installing import install
from .opening import OpenedOrder, check_suspect, open_order
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
    """Recover the order and every log. Raises PromisesLost, StorageFull, Poisoned, and ReplicaDamaged (noted).

    `suspect`: paths of logs with a sync that never answered (see `LogWriter.open`).
    """
    if not files.exists(f"{data}/{PROMISES}"):
        raise PromisesLost(f"{data}/{PROMISES} is gone: this node may have voted where it cannot tell any more")
    try:
        install(files, data, ids.order, options, suspect)
        found = damage.noted(files, data)
        if found is None or found.mended:
            return _open_files(files, data, ids, options, suspect)
    except (ReplicaDamaged, Corrupt, InvalidBatch, InvalidTopic) as error:
        found = damage.note(files, data, error.message, getattr(error, "path", ""), judged=True)
        raise ReplicaDamaged(found.reason) from error
    except OSError as error:
        if not (is_damage(error) and error.filename):  # those of reading name their file
            raise
        found = damage.note(
            files, data, f"{error.filename} cannot be read: {error.strerror}", error.filename, judged=True
        )
        raise ReplicaDamaged(found.reason) from error
    raise ReplicaDamaged(found.reason)


def _open_files(
    files: Files, data: str, ids: ShardIds, options: LogOptions | None, suspect: Collection[str]
) -> OpenedOrder:
    path = f"{data}/{ORDER}"
    if not has_begun(files, data):
        raise ReplicaDamaged(f"{path} has no checkpoint: a replica begins with one")
    if path in suspect:
        check_suspect(files, path, ids.order)
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
    on_damage: Callable[[Corrupt], None] = lambda damage: None,
    publish: Publish = lambda logs: None,
    checkpoint_every: int = ENTRIES,
    order_segments: int = SEGMENTS,
) -> Replica:
    """A member over files that were opened. `store` makes the node's store over the order of its logs.

    `options.applied` is set here. Raises PromisesLost, ReplicaDamaged (noted), and what opening a node does.
    """
    replicated = Replicated(opened.places)
    storage = GroupStorage(opened.order, promises, opened.checkpoint, opened.members.configuration)
    directories = Directories(known, opened.members, opened.places.entry)
    core = RaftNode(replace(options, applied=opened.places.entry), storage)
    logs = store(replicated)
    logs.places = opened.places
    lead: list[Replica] = []
    answers = _held_answers(port, lead, on_damage)
    node = _open_node(
        opened,
        lambda: Node(
            logs, answers, randomness=randomness, config=config, now=now,
            may_lead=lambda: bool(lead) and lead[0].may_lead(),
        ),
    )  # fmt: skip
    damage.forget(opened.order.log.files, opened.order.log.path.rpartition("/")[0])
    logs.delete_left_over(node.topics)
    node.tell_damage(answers.meet)
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
        clocks=MemberClocks(config.clock_jump_s),
        digest_every=checkpoint_every,
    )
    lead.append(replica)
    return replica


def _held_answers(port: Port, lead: list[Replica], on_damage: Callable[[Corrupt], None]) -> HeldAnswers:
    """Answers that ask the replica in `lead` whether it may close for damage, and tell it where it may not."""

    def stay(damage: Corrupt) -> None:
        on_damage(damage)
        lead[0].exchange.mend(damage)

    answers = HeldAnswers(port)
    answers.spared, answers.tell = lambda: lead[0].heartbeats.spares_itself, stay
    answers.mends = lambda damage: lead[0].exchange.mends(damage)
    return answers


def _open_node(opened: OpenedOrder, make: Callable[[], Node]) -> Node:
    """The node over the logs. Raises ReplicaDamaged (noted), and what opening a node does."""
    order = opened.order.log
    data = order.path.rpartition("/")[0]
    try:
        node = make()
        _check_opened(node)
    except (Corrupt, ReplicaDamaged) as error:
        damage.note(order.files, data, error.message, error.path or f"{data}/{METADATA}", judged=True)
        raise ReplicaDamaged(error.message) from error
    return node


def _check_opened(node: Node) -> None:
    """Raise ReplicaDamaged where what a log adds up to cannot be read: it would be another state than the others'.
    StorageFull where a log could not be opened for want of room.

    And where the beginning of a log is gone, which retention did not take: its files go behind a checkpoint that covers
    what they go for, so that the state of this opening knows it.
    """
    for path, error in node.unsound:
        if isinstance(error, (Corrupt, InvalidBatch, InvalidTopic, ReplicaDamaged)):
            raise ReplicaDamaged(error.message, path=path)
        if isinstance(error, StorageFull):  # the partition would be missing until the next start
            raise error
    for log in node.without_beginning:
        first = log.names[0].base_seq
        raise ReplicaDamaged(f"{log.path} begins at batch {first}, and its state needs what was before", path=log.path)
