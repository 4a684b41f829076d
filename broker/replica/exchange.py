"""A replica's part in catch-ups: as leader it hands its state out, as a member that lags it fetches one.

Beside that, any member has batches that have rotted from any other (mending.py, handing_out.py).

Idea: the Raft core says which member needs what the order no longer has, by a SNAPSHOT that names an entry: an offer.
The member then asks, and the leader answers (catching_up.py, shipping.py), in messages of their own kinds beside
Raft's.

Contract: only a leader hands a state out: what is applied, so committed. To a member that has lost something it does
so once its office may open, in a term above all that the member has promised (recovering.py). An offer that leads to
nothing is reported to the core, which makes another. Raises ReplicaBroken once a state is staged: opening installs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ...storage.errors import Corrupt, InvalidBatch, StorageError
from ..raft.messages import Kind, Message
from ..raft.state import Role
from . import catchup_messages as cm
from . import checkpoint as checkpoints
from .bodies import beside
from .catching_up import CatchUp
from .damage import log_in
from .errors import ReplicaBroken, StateDiffers
from .handing_out import HandingOut
from .mending import Mending
from .places import START
from .shipping import QUIET_TICKS, ManifestDraft, Shipping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ...storage.files import Files
    from ...storage.log import LogOptions, LogWriter
    from ...storage.recovery import LogEnd
    from ..engine.node import Node
    from ..raft.node import RaftNode
    from .checkpoint import Checkpoint
    from .order_log import OrderLog
    from .places import Places


class Exchanging(Protocol):
    """A replica, as far as a catch-up concerns it."""

    node: Node
    core: RaftNode
    order: OrderLog
    places: Places

    @property
    def promised(self) -> int:
        """The term that is promised durably."""
        ...

    def logs(self) -> list[LogWriter]:
        """Every open log but the order log."""
        ...

    def may_lead(self) -> bool:
        """Whether this node leads, and an entry of its term is applied."""
        ...

    def hold(self, held: bool) -> None:
        """Whether files must stay."""
        ...

    def met(self, damage: Corrupt) -> None:
        """Reading for another member has met damage here."""
        ...

    def mended(self, damage: Corrupt | None) -> None:
        """What had rotted of a log is whole again, but for this."""
        ...


class Exchange:
    """See the module."""

    def __init__(
        self, replica: Exchanging, files: Files, data: str, send: Callable[[Message, list[bytes]], None],
        options: LogOptions | None = None,
    ) -> None:  # fmt: skip
        self._replica = replica
        self._send = send
        self._data = data
        self._wanted = (0, 0)  # entry and term of the state that is fetched
        self._asking: dict[int, int] = {}  # members that wait for a manifest, of a checkpoint of this entry or a later
        self._recovering: dict[int, int] = {}  # members that have lost something, and how many ticks they were silent
        self._listings: list[tuple[ManifestDraft, list[int]]] = []  # manifests in the making, and for which members
        self.shipping = Shipping(self._put_piece, self._hold, self._ended, replica.met)
        self.catching_up = CatchUp(
            files, data, replica.order.log.log_id, own=self._own, ask=self._put_ask, options=options
        )
        self.handing_out = HandingOut(files, data, self._put_piece)
        self.mending = Mending(
            files, data, others=self._others, ask=lambda member, asked: self._put(Kind.SHIP, member, asked),
            ended=self._mended, durable=self._durable,
        )  # fmt: skip
        self._on_mended: dict[str, list[Callable[[], None]]] = {}

    def mend(self, damage: Corrupt, on_mended: Callable[[], None] = lambda: None) -> None:
        """Bytes here do not verify: have them from another member. `on_mended` is called once that is done."""
        log = "" if isinstance(damage, StateDiffers) else log_in(self._data, damage.path)
        if log:
            self._on_mended.setdefault(log, []).append(on_mended)
            self.mending.begin(log)
        else:
            self._replica.mended(damage)

    def mends(self, damage: Corrupt) -> bool:
        """Whether what is damaged may yet come from another member."""
        return self.mending.mends(log_in(self._data, damage.path))

    def _mended(self, log: str, batches: int, problem: str) -> None:
        waiting = self._on_mended.pop(log)
        if batches and not problem:
            self._replica.mended(None)
            for on_mended in waiting:
                on_mended()
        else:
            reason = problem or f"{log} was read with damage, and no batch of it has rotted"
            self._replica.mended(Corrupt(reason, path=f"{self._data}/{log}"))

    def _durable(self, log_id: bytes) -> int:
        replica = self._replica
        if log_id == replica.order.log.log_id:
            return replica.places.entry
        return replica.places.applied.get(log_id, START)[0]

    def _others(self) -> list[int]:
        status = self._replica.core.status()
        return [node for node in status.configuration.members() if node != status.node]

    def tick(self) -> None:
        """Time passed."""
        self.shipping.tick()
        self.catching_up.tick()
        self.handing_out.tick()
        self.mending.tick()
        is_leader = self._replica.core.role is Role.LEADER
        silent = {member: ticks + 1 for member, ticks in self._recovering.items()}
        self._recovering = {member: ticks for member, ticks in silent.items() if is_leader and ticks <= QUIET_TICKS}

    def recovers(self, member: int) -> bool:
        """Whether a member has lost something, and asks this leader for it."""
        return member in self._recovering

    def sends(self, message: Message) -> None:
        """A message of the core leaves."""
        if message.kind is Kind.SNAPSHOT:
            self.shipping.offered(message.to)

    def takes_offer(self, message: Message) -> bool:
        """Whether a SNAPSHOT offers what this member lacks; the core answers all others.

        The core takes none of these: it would acknowledge what is not here. One of a term that is not that of this
        member is as if lost.
        """
        snapshot, core = message.snapshot, self._replica.core
        if snapshot is None or not self._lacks(snapshot.index, snapshot.term):
            return False
        if message.term == core.term:
            self._say_place(message.sender)
            self.catching_up.begin(message.sender)
        return True

    def _say_place(self, leader: int) -> None:
        """Tell a leader how far this member is. It may have installed a state that the leader does not know of, as its
        process ended with the word that all is staged: where the leader has the entries behind that, they will do."""
        replica = self._replica
        term = replica.core.term
        if replica.promised >= term:  # else the acknowledgement of a term would leave before it is promised
            self._send(Message(Kind.APPEND_ACK, leader, replica.core.status().node, term, replica.places.entry), [])

    def _lacks(self, entry: int, term: int) -> bool:
        replica = self._replica
        return entry > replica.core.committed and replica.order.term(entry) != term

    def take(self, message: Message, bodies: Mapping[tuple[bytes, int, int], bytes]) -> None:
        """A SHIP or a PIECE of another member. Raises ReplicaBroken, StorageFull, Poisoned."""
        try:
            said = cm.decode(message.context)
        except InvalidBatch:
            return
        batches = beside(said, bodies)
        if isinstance(said, cm.AskWhole):
            self.handing_out.asked(message.sender, said)
        elif isinstance(said, cm.WholeBatches):
            self.mending.take(message.sender, said, batches)
        elif isinstance(said, (cm.AskManifest, cm.AskBatches, cm.AskFile, cm.Staged)):
            self._asked(message.sender, said)
        else:
            self._got(message.sender, said, batches)

    def _asked(self, member: int, said: cm.Asked) -> None:
        replica = self._replica
        if replica.core.role is not Role.LEADER:
            return
        if isinstance(said, cm.AskManifest) and said.promised:
            self._recovering[member] = 0
            if not self._serves(said.promised):
                return
        elif isinstance(said, (cm.AskManifest, cm.Staged)):
            self._recovering.pop(member, None)
        elif member in self._recovering:
            self._recovering[member] = 0
        if isinstance(said, cm.AskManifest):
            if not any(member in members for _, members in self._listings):  # it is asked for until it has come
                self._asking.setdefault(member, replica.places.entry)
                replica.hold(True)  # what the checkpoint will name
        elif isinstance(said, cm.Staged):
            self.shipping.end(member)
            replica.core.report_snapshot(member, installed=True)
        else:
            self.shipping.asked(member, said)

    @property
    def waits(self) -> bool:
        """Whether a member waits for the next checkpoint."""
        return bool(self._asking)

    def checkpointed(self, made: Checkpoint) -> None:
        """A checkpoint is durable: make the manifest of it for the members that wait for one. Raises StorageError.

        One that was begun before a member asked may name what went until then.
        """
        if members := [member for member, entry in self._asking.items() if entry <= made.entry]:
            replica = self._replica
            time_us = replica.order.log.place_behind(made.entry)[0].time_us
            self._listings.append((ManifestDraft(made, time_us, replica.logs()), members))
            for member in members:
                del self._asking[member]

    def work(self) -> None:
        """Go on with a manifest, and send it once it is made."""
        try:
            is_made = bool(self._listings) and self._listings[0][0].step()
        except (StorageError, OSError) as error:
            self._listings.pop(0)
            self._hold(self.shipping.entry() is not None)
            if isinstance(error, Corrupt):
                self._replica.met(error)
            return  # else the removal of a segment was under way, for example: it will be asked for again
        if is_made:
            listing, members = self._listings.pop(0)
            for member in members:
                self.shipping.begin(member, listing)

    @property
    def lists(self) -> bool:
        """Whether the next turn goes on with a manifest."""
        return bool(self._listings)

    @property
    def is_busy(self) -> bool:
        """Whether a manifest is to be made: once the checkpoint for it is written, or now."""
        return self.waits or self.lists

    def _hold(self, held: bool) -> None:
        """Nothing is shipped any more, or something is: files stay for members that wait, too."""
        self._replica.hold(held or self.is_busy)

    def restarted(self, member: int) -> None:
        """A member began anew, perhaps with the state that it has fetched here: what it needs now is found out."""
        self.shipping.end(member)
        self._ended(member)

    def end_lead(self) -> None:
        """This node leads no more, so it hands nothing out."""
        self._asking.clear()
        self._listings.clear()
        self.shipping.end_all()
        self._replica.hold(False)

    def _serves(self, promised: int) -> bool:
        """Whether a member that has lost something may have the state: of a term above its promises, and with an entry
        of that term, so that all is committed here that it may have acknowledged. Where not, it will be asked again."""
        replica = self._replica
        if replica.may_lead() and promised >= replica.core.term:
            replica.core.renew(promised)
        return replica.may_lead() and promised < replica.core.term

    def _got(self, member: int, said: cm.Shipped, batches: list[bytes]) -> None:
        if not self.catching_up.awaits(member, said):
            return
        if isinstance(said, cm.Manifest):
            try:
                term = checkpoints.received(said.checkpoint).term
            except InvalidBatch:  # the member asks again
                return
            if term > self._replica.promised:  # as if lost: what is installed is of a term that is promised
                return
            self._wanted = said.entry, term
        if not self._lacks(*self._wanted):  # the order itself has come this far, and what is behind it is acknowledged
            self.catching_up.end()
        elif self.catching_up.take(member, said, batches):
            raise ReplicaBroken("a state that this member lacks is staged: it is installed when the replica is opened")

    def _own(self, shipped: cm.ShippedLog) -> LogEnd | None:
        """The place in a log of ours up to which all is applied, so the same everywhere."""
        history = self._replica.node.history_of(shipped.log_id)
        if history is None:
            return None
        try:
            return history.log.place_behind(self._replica.places.applied.get(shipped.log_id, START)[0])[0]
        except Corrupt:
            return None

    def _put_ask(self, leader: int, asked: cm.Asked) -> None:
        self._put(Kind.SHIP, leader, asked)

    def _put_piece(self, member: int, shipped: cm.Shipped | cm.WholeBatches, batches: Sequence[bytes]) -> None:
        self._put(Kind.PIECE, member, shipped, batches)

    def _put(self, kind: Kind, to: int, said: cm.Said, batches: Sequence[bytes] = ()) -> None:
        node = self._replica.core.status().node
        self._send(Message(kind, to, node, context=cm.encode(said)), list(batches))

    def _ended(self, member: int) -> None:
        self._replica.core.report_snapshot(member, installed=False)

    def close(self) -> None:
        """Close what is open."""
        self.end_lead()
        self.catching_up.end()
        self.mending.close()
