"""The loop of one member: what clients propose becomes entries, entries are written, and what is committed is applied.

Idea: the Raft core decides, the engine knows what batches mean, and the logs hold them; this module carries things
between the three. As leader it asks the core for a place, lets the engine flush, and proposes one entry for all that
was appended. As follower it appends what entries name. Acknowledgements leave when the durable prefix has reached them.

Contract of the driver, which calls from one thread:

    replica = open_replica(...)
    loop:
        replica.step(message, bodies)       for each message of a peer, with the batches that came with it
        replica.tick()                      when one is due
        replica.receive(peer, message, ...) for each request of a client
        replica.turn(now)                   writes, sends, applies and answers
        ... sync `replica.dirty()` by itself or by a keeper ...
        replica.synced(now)                 acknowledges and applies what became durable

`ReplicaBroken`, Corrupt, Poisoned, StorageFull, and an OSError of the disk, from any of them: note what that says of
the files (damage.py), `abandon` the replica, and open another over the same files.
Must not know sockets, clocks or processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from ...storage.batch import parse
from ...storage.errors import InvalidBatch
from ...transport.messages import AskCluster, Hello, NameRequest, Ping, ReplaceNode, Stats, TransferLead
from ..raft.messages import NONE, EntryKind, Kind
from ..raft.state import Role
from .bodies import ArrivedBodies, Bodies, Gone, bodies_of
from .clocks import MemberClocks
from .digesting import Digesting, parts
from .directories import change_of
from .durable_prefix import DurablePrefix
from .entries import Flush, NamedBatch, batches_of, encode_flush
from .errors import ReplicaBroken
from .exchange import Exchange
from .heartbeats import Heartbeats
from .member_changes import MemberChanges
from .order_checkpoints import ENTRIES, OrderCheckpoints
from .places import LogRow
from .preparing import Preparing
from .room import DiskRoom
from .uncommitted import Uncommitted

if TYPE_CHECKING:
    from ...storage.errors import Corrupt
    from ...storage.log import LogWriter
    from ..engine.logs.history import History
    from ..engine.node import Node
    from ..engine.ports import Now, Payload, Peer
    from ..raft.messages import Entry, Message
    from ..raft.node import RaftNode
    from ..raft.ready import Ready
    from ..rights import Principal
    from .checkpoint import Checkpoint
    from .directories import Directories
    from .group_storage import GroupStorage
    from .held_answers import HeldAnswers
    from .order_log import OrderLog
    from .places import Places
    from .replicated import Replicated

ANYWHERE = (Hello, Ping, Stats, AskCluster, ReplaceNode, TransferLead, NameRequest)
"""What a member answers that does not lead."""

CATCH_UP = (Kind.SHIP, Kind.PIECE)
"""Messages that are not the core's."""

Send = Callable[["Message", list[bytes]], None]
"""Send a message to its receiver, with the batches that its entries only name."""

Publish = Callable[[Sequence["LogWriter"]], None]
"""Show readers on this machine what is committed of these logs by now."""


class Unacknowledged(NamedTuple):
    """Responses that leave once entry `entry` is durable here."""

    entry: int
    responses: list[Message]


class Replica:
    """One member. `on_role` hears of the leader that this node knows, and of its term, when either changed."""

    def __init__(
        self,
        node: Node,
        core: RaftNode,
        *,
        order: OrderLog,
        places: Places,
        replicated: Replicated,
        storage: GroupStorage,
        answers: HeldAnswers,
        checkpoints: OrderCheckpoints,
        directories: Directories,
        send: Send,
        on_role: Callable[[int, int], None] = lambda leader, term: None,
        publish: Publish = lambda logs: None,
        clocks: MemberClocks | None = None,
        digest_every: int = ENTRIES,
    ) -> None:
        self.node = node
        self.core = core
        self.order = order
        self.places = places
        self.prefix = DurablePrefix(order.last_index())
        self._replicated = replicated
        self._storage = storage
        self._answers = answers
        self._checkpoints = checkpoints
        self._changes = MemberChanges(core, checkpoints)
        self.directories = directories
        self._send = send
        self._on_role = on_role
        self._publish = publish
        self.held_back = False
        """Whether nothing may be proposed now, and requests wait: in a transfer, or while too much is uncommitted."""
        self._id = core.status().node
        self._role = (0, 0)
        self.room = DiskRoom(self._id)
        node.hold_to(self.room)
        self._catalogue_id = node.logs[0].log_id
        self._own: set[int] = set()  # entries whose batches the engine appended itself
        self._uncommitted = Uncommitted()
        self._bodies = ArrivedBodies(node)
        self._waiting: deque[Unacknowledged] = deque()
        self._opened_term = 0  # the term of this node in which an entry of its own was applied
        self._dirty: dict[LogWriter, None] = {}
        self._is_copied = False  # another member fetches what the newest checkpoint names
        self.preparing = Preparing(node, replicated)
        self.clocks = clocks or MemberClocks(inf)
        files, (data, _, _) = order.log.files, order.log.path.rpartition("/")
        self.exchange = Exchange(self, files, data, send, order.log.options)
        self.digesting = Digesting(self, digest_every)
        self.heartbeats = Heartbeats(self)

    # -- what comes in ------------------------------------------------------------------------------

    def step(self, message: Message, bodies: Bodies | None = None) -> None:
        """Take a message of a peer. An append without the batches that it needs is dropped, as if lost."""
        if message.kind in CATCH_UP:
            self.exchange.take(message, bodies or {})
            return
        self.heartbeats.take(message)
        if self.room.is_full and (message.entries or message.kind is Kind.SNAPSHOT):
            return  # as if lost: it comes again until there is room
        if message.kind is Kind.SNAPSHOT and self.exchange.takes_offer(message):
            return
        if message.kind is not Kind.APPEND or not self.preparing.holds(message, bodies or {}, self.core.term):
            self._take_whole(message, bodies or {})

    def _take_whole(self, message: Message, bodies: Bodies) -> None:
        self._bodies.add(bodies)
        if message.kind is Kind.APPEND:
            message.entries = self.order.up_to_other(self._changes.admitted(message))
        if message.kind is not Kind.APPEND or all(map(self._bodies.has_all, message.entries)):
            self.core.step(message)

    def tick(self) -> None:
        """One tick of time."""
        self.core.tick()
        self.order.note_acked(self.prefix.entry)
        self.exchange.tick()
        self.heartbeats.tick()
        self._checkpoints.tick()
        if self.node.leads:
            self._look_at_room()
        else:
            self.room.follow()

    def receive(self, peer: Peer, message: Any, payload: Payload, now: Now, principal: Principal | None = None) -> None:
        """Take a request of a client. Without an office, all but a few are refused with where the leader is."""
        now = self.clocks.now(now, self.order.log.last_time_us)
        answers, is_answered = self._answers, isinstance(message, ANYWHERE)
        is_doubted = isinstance(message, Hello) and self.node.leads and message.term > self.core.term
        answers.passing = is_answered and not is_doubted
        if is_answered or self.node.leads:
            self.node.receive(peer, message, payload, now, principal)
        else:
            answers.passing = True
            self.node.refuse(peer, message)
        answers.passing = False

    def _look_at_room(self) -> None:
        """As leader, see whether records may be taken, and hand over to a voter with room where there is none here: one
        that answers and has all entries, as nothing is proposed until it leads."""
        status = self.core.status()
        voters = status.configuration.voters
        self.room.look(voters, self._uncommitted.bytes)
        members = status.members.items()
        if better := self.room.better(
            node for node, each in members if node in voters and each.is_heard and each.match == status.last
        ):
            self.core.transfer(better)

    def may_lead(self) -> bool:
        """Whether the office may open: this node leads, an entry of its term is applied, and all members have met."""
        is_open = self.core.role is Role.LEADER and self._opened_term == self.core.term
        return is_open and self.directories.table.met

    # -- a turn -------------------------------------------------------------------------------------

    def turn(self, now: Now) -> None:
        """Propose what clients asked for, write and send what Raft wants, apply what is committed."""
        self._check()
        now = self.clocks.now(now, self.order.log.last_time_us)
        for message, bodies in self.preparing.take(self.core.term):
            self._take_whole(message, bodies)
        self._follow_role()
        self._propose_change()
        self._propose(now)
        self._work(now)
        if (context := self._answers.begin_round()) is not None and not self.core.read(context):
            self._answers.drop()
        self._work(now)
        self.node.tick(now)
        self.digesting.work()
        self._bodies.clear()
        begin = self._checkpoints.due(self) or self._storage.needs_checkpoint(self.places.entry)
        if (made := self._checkpoints.work(self, begin=begin or self.exchange.waits)) is not None:
            self._storage.checkpoint = made
            self.exchange.checkpointed(made)
        self.exchange.work()

    def synced(self, now: Now) -> None:
        """Logs became durable: acknowledge, and apply what that commits."""
        self._confirm()
        self._work(self.clocks.now(now, self.order.log.last_time_us))

    def dirty(self) -> list[LogWriter]:
        """The logs to be synced: those that entries wait for, the order log first, and those that files wait for."""
        found = list(self._dirty)
        self._dirty.clear()
        ordered = [self.order.log, *(log for log in found if log is not self.order.log)] if found else []
        return [*ordered, *(log for log in self._checkpoints.hurried() if log not in found)]

    def _propose_change(self) -> None:
        if self.core.role is Role.LEADER and not self.directories.is_settled:
            change = self.directories.next_change(self.core.status())
            if change is not None:
                self._changes.propose(change)

    def replace(self, node: int, uuid: bytes) -> str:
        """As leader, begin to make a directory that of a member. Why that cannot be now; "" where it has begun."""
        return self._changes.propose(self.directories.replacement(self.core.status(), node, uuid))

    def _propose(self, now: Now) -> None:
        place = self.core.next_place() if self.node.leads else None
        is_full = self._uncommitted.is_full
        self.held_back = self.node.leads and (place is None or is_full)
        if place is None or is_full:
            return
        if place.term != self._replicated.leading:
            raise ReplicaBroken(
                f"term {place.term} is proposed in, and logs are stamped with {self._replicated.leading}"
            )
        self.node.flush(now)
        self._check()
        stamped = self._replicated.take()
        if stamped:
            time_us = max(self._replicated.time_us, self.order.log.last_time_us)
            data = encode_flush(time_us, stamped, digest=self.digesting.asks(place.index))
            if self.core.propose(data) is None:
                raise ReplicaBroken(f"entry {place.index} was refused after its batches were stamped")
            self._own.add(place.index)
            self._uncommitted.proposed(place.index, len(data) + sum(batch.size for batch in stamped))

    def _work(self, now: Now) -> None:
        while self.core.has_ready():
            ready = self.core.ready()
            self._follow_role()
            if ready.promise is not None:
                self._storage.keep(ready.promise)
            self._write(ready.entries)
            for message in ready.messages:
                self._put(message)
            if ready.responses:
                self._waiting.append(Unacknowledged(self.order.last_index(), ready.responses))
            for state in ready.reads:
                self._answers.confirm(state.context, state.index)
            self._apply(ready, now)
            self._confirm()
        self._answers.release(self.places.entry)

    def _check(self) -> None:
        if self._replicated.broken:
            raise ReplicaBroken(self._replicated.broken)
        if self._answers.damage is not None:
            raise self._answers.damage

    # -- roles --------------------------------------------------------------------------------------

    def _follow_role(self) -> None:
        core = self.core
        leading = core.term if core.role is Role.LEADER else 0
        if leading != self._replicated.leading:
            if self.node.leads:
                self.node.resign()
            self._answers.drop()
            self.exchange.end_lead()
            self._replicated.leading = leading
            self._replicated.take()
        if (role := (core.leader, core.term)) != self._role:
            self._role = role
            self._on_role(*role)

    # -- writing ------------------------------------------------------------------------------------

    def _write(self, entries: list[Entry]) -> None:
        if not entries:
            return
        if entries[0].index <= self.order.last_index():
            self._cut(entries[0].index - 1)
        named = [(entry, list(batches_of(entry.kind, entry.data))) for entry in entries]
        taken: dict[bytes, list[bytes]] = {}
        for entry, batches in named:
            if entry.index in self._own:
                self._own.discard(entry.index)
            else:
                for flush, batch in batches:
                    taken.setdefault(batch.log_id, []).append(self._bodies.of(flush, batch))
        for log_id in sorted(taken, key=lambda each: each != self._catalogue_id):  # it names the logs of others
            self._take(log_id, taken[log_id])
        for entry in entries:
            self.directories.appended(entry)
        self.order.append(entries)
        for entry, batches in named:
            self._note(entry, batches)

    def _take(self, log_id: bytes, batches: list[bytes]) -> None:
        history = self._history(log_id)
        try:
            self._replicated.follow(history.log, batches)
        except InvalidBatch as error:  # which is not said of files here: the leader sends it again
            raise ReplicaBroken(f"a batch of {history.log.path} came that does not verify: {error.message}") from error
        self._check()
        self.node.follow(history, [parse(batch) for batch in batches])

    def _history(self, log_id: bytes) -> History[Any]:
        history = self.node.history_of(log_id)
        if history is None:
            raise ReplicaBroken(f"an entry names a batch of log {log_id.hex()}, which no topic here has")
        return history

    def _note(self, entry: Entry, batches: list[tuple[Flush, NamedBatch]]) -> None:
        self.places.appended(entry.index, [LogRow(row.log_id, row.seq, row.checksum) for _, row in batches])
        named = [(row.log_id, row.seq) for _, row in batches if not row.position]
        self.prefix.appended(entry.index, named)
        self._dirty[self.order.log] = None
        for log_id, _ in named:
            self._dirty[self._history(log_id).log] = None

    def _cut(self, index: int) -> None:
        """Another leader has other entries behind `index`: logs go back, and acknowledgements of them never leave."""
        self.prefix.cut(index)
        back = self.places.cut(index)
        self.order.cut(index)
        for log_id, (seq, _) in back.items():
            self._history(log_id).go_back(seq)  # on the disk when it is prepared for its next append
        self._own = {own for own in self._own if own <= index}
        self._uncommitted.cut(index)
        node = self._id
        self._waiting = deque(
            each if each.entry <= index else Unacknowledged(index, [one for one in each.responses if one.to == node])
            for each in self._waiting
        )

    def logs(self) -> list[LogWriter]:
        """Every open log but the order log."""
        return self.node.logs

    # -- sending ------------------------------------------------------------------------------------

    def _put(self, message: Message) -> None:
        """Send a message, with the batches that its entries only name. One whose batches are gone is not sent: its
        receiver is offered what they add up to. Those of an entry that is not applied were cut: the lead is over."""
        bodies = bodies_of(message.entries if message.kind is Kind.APPEND else (), self.node, self.met)
        if isinstance(bodies, Gone):
            if bodies.entry <= self.places.entry:
                self._storage.floor = max(self._storage.floor, bodies.entry)
            self.core.report_unreachable(message.to)
            return
        self.exchange.sends(message)
        self.heartbeats.leaves(message)
        self._send(message, bodies)

    # -- acknowledging and applying -----------------------------------------------------------------

    def _confirm(self) -> None:
        """Let what is durable be acknowledged."""
        durable = self.prefix.advance(self.order.log.durable, self._durable)
        while self._waiting and self._waiting[0].entry <= durable:
            for message in self._waiting.popleft().responses:
                if message.to == self._id:
                    self.core.settle(message)
                else:
                    message.clock_us = self.clocks.own_us
                    self._send(message, [])

    def _durable(self, log_id: bytes) -> int:
        history = self.node.history_of(log_id)
        return 1 << 62 if history is None else history.log.durable  # a deleted topic's log was synced when it closed

    def _apply(self, ready: Ready, now: Now) -> None:
        self.order.commit = self.core.committed
        for entries in parts(ready.committed):
            self._apply_entries(entries)
            self._advance(now)
            self.digesting.applied(entries[-1])
        if not ready.committed:
            self._advance(now)
        if ready.applied is not None:
            self.core.settle(ready.applied)

    def _apply_entries(self, entries: list[Entry]) -> None:
        last = entries[-1]
        for entry in entries:
            self._apply_change(entry)
        if last.index > self.prefix.entry:
            raise ReplicaBroken(f"entry {last.index} is to be applied, and {self.prefix.entry} is durable here")
        moved = {row.log_id for row in self.places.rows(self.places.entry + 1, last.index)}
        self.digesting.moving(moved)
        self.places.apply(last.index)
        self._publish([history.log for each in moved if (history := self.node.history_of(each)) is not None])
        if last.term == self.core.term and self.core.role is Role.LEADER:
            self._opened_term = last.term
        self._uncommitted.applied(last.index)

    def _advance(self, now: Now) -> None:
        self._answers.passing = True
        self.node.advance(now)
        self._answers.passing = False
        self._check()

    def _apply_change(self, entry: Entry) -> None:
        if entry.kind is EntryKind.CHANGE and entry.index > 1:
            change = change_of(entry)
            self.core.apply_change(change, entry.index)
            self.directories.applied(change, entry.index)
            self._checkpoints.change(self.directories.members)

    def checkpoint(self) -> Checkpoint:
        """Write a checkpoint now. Raises StorageFull, Poisoned."""
        self._storage.checkpoint = self._checkpoints.save(self)
        return self._storage.checkpoint

    @property
    def promised(self) -> int:
        """See GroupStorage."""
        return self._storage.promised

    def met(self, damage: Corrupt) -> None:
        """See HeldAnswers."""
        self._answers.meet(damage)

    def mended(self, damage: Corrupt | None) -> None:
        """See Exchange. What cannot be mended is damage to close for."""
        if damage is None:
            self._answers.forget_told()
        else:
            self.heartbeats.rotten(damage)

    def hold(self, held: bool) -> None:
        """Whether a member fetches what the newest checkpoint names, so that no file of it may go."""
        self._is_copied = held
        self.node.hold_files(held)

    @property
    def keeps_files(self) -> bool:
        """Whether no file may go: another member fetches what is here, or this one fetches what follows it."""
        return self._is_copied or self.exchange.catching_up.source != NONE

    # -- the end ------------------------------------------------------------------------------------

    def close(self, now: Now) -> None:
        """End in good order: no office opens any more, and the next opening finds a checkpoint of what is applied.

        Raises StorageFull, Poisoned.
        """
        self._opened_term = 0
        if self.node.leads:
            self.node.resign()
        self.checkpoint()
        self.node.close(now)
        self.order.close()

    def abandon(self) -> None:
        """Let go of everything as a killed process would: another replica is opened over the files."""
        self.exchange.close()
        for log in [self.order.log, *self.node.logs]:
            log.close(clean=False)
