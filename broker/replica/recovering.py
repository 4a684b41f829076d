"""A member that has lost something: it fetches a whole state from a leader, and is no voter meanwhile.

Idea: there is no Raft core here, so the member neither votes nor acknowledges. Any word of a leader begins a catch-up
that asks for a state of a term above all that this member has promised. A leader of that term, or a lower one, begins
a new term for it. What was acknowledged here in earlier terms then counts in no commit to come, and the leader has all
of it that was committed: it was elected without this member.

Own batches are used up to the newest checkpoint, which has only what is committed, as far as every byte of them
verifies. Logs that are named as damaged are fetched whole.

Where the files say all that is known of the damage (damage.py), the member first has what has rotted from any others,
in whatever state they are (mending.py). If that is all, an opening judges the files anew. Else a leader is asked, or
the others again while there is none.

Contract: writes only `DATA/staged/`, and the promise of the term that it is served in, before the install record; and
over what has rotted. On a full disk it fetches nothing, and goes on once there is room. `step` and `tick` raise
ReplicaBroken once all is staged, or mended. Must not know links or clients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING

from ...storage import layout, snapshots
from ...storage.data_directory import ORDER, STAGED, log_path
from ...storage.errors import Corrupt, InvalidBatch, StorageError, StorageFull, is_damage
from ...storage.reader import LogReader
from ...storage.recovery import NOTHING, LogEnd
from ..raft.membership import restored
from ..raft.messages import Kind, Message
from . import catchup_messages as cm
from . import checkpoint as checkpoints
from .beginning import FIRST_TERM
from .bodies import beside
from .catching_up import CatchUp
from .damage import note_mended
from .errors import ReplicaBroken
from .group_storage import check
from .handing_out import HandingOut
from .mending import Mending
from .places import START
from .room import DiskRoom
from .staging import record_names

if TYPE_CHECKING:
    from ...storage.files import Files
    from ...storage.log import LogOptions
    from ...storage.promises import Promises
    from .checkpoint import Checkpoint
    from .damage import NotedDamage

FROM_LEADER = (Kind.APPEND, Kind.HEARTBEAT, Kind.SNAPSHOT)

CHUNK_BYTES = 4 << 20
"""Read together while own batches are verified."""

MEND_AGAIN_TICKS = 100
"""After so long without a leader, the others are asked again for what has rotted."""

FULL_TICKS = 60
"""So long nothing is fetched after the disk refused a piece: 3 s, or a cluster that needs the node waits for it."""

LEADER_TICKS = 20
"""Without a word for so long, a leader is none any more to those who ask this member."""


class Recovery:
    """See the module. `leader` and `term`: of the last word of a leader, which is none any more once it is silent.
    `room`: of the disk, which the driver says."""

    def __init__(
        self, files: Files, data: str, order_id: bytes, *, node: int, damage: NotedDamage, promises: Promises,
        send: Callable[[Message, list[bytes]], None], options: LogOptions | None = None,
    ) -> None:  # fmt: skip
        """Raises PromisesLost, Poisoned: what this member promised is the bound of it all."""
        found = _newest_checkpoint(files, data, order_id)
        check(promises, order_id, 0 if found is None else found.term)
        promises.make_durable()
        self.leader = self.term = 0
        self.damage = damage
        self._files = files
        self._data = data
        self._order_id = order_id
        self._node = node
        self._promises = promises
        self._send = send
        self._places = {} if found is None else found.places()
        self.promised = max(promises.term(order_id), FIRST_TERM)
        if list(record_names(files, data)):
            files.remove_tree(f"{data}/{STAGED}")  # it could not be installed
        self.catching_up = CatchUp(
            files, data, order_id, own=self._own, ask=self._ask, promised=self.promised, options=options
        )
        members = () if found is None else restored(found.members().configuration).members()
        durable = {} if found is None else {**self._places, order_id: (found.commit, 0)}
        self.handing_out = HandingOut(files, data, self._hand_out)
        self.mending = Mending(
            files, data, others=lambda: [each for each in members if each != node], ask=self._ask, ended=self._mended,
            durable=lambda log_id: durable.get(log_id, START)[0],
        )  # fmt: skip
        self.problem = ""
        """Why what has rotted could not be mended."""
        self.room = DiskRoom(node)
        self.refused = ""
        """What the disk had no room for; "" once it is tried again."""
        self._rest = 0  # ticks until then
        self._idle = 0  # ticks in which nothing was mended, and no state was fetched
        self._silent = 0  # ticks since a leader was heard
        self._rotten = damage.logs(data) if damage.judged else set[str]()
        self._begin_mending()

    def _begin_mending(self) -> None:
        self._idle = 0
        for log in sorted(self._rotten):
            self.mending.begin(log)

    def _mended(self, log: str, batches: int, problem: str) -> None:
        if problem:
            self.problem = problem
        else:
            self._rotten.discard(log)

    def _go_on(self) -> None:
        """Have the files judged anew where all that had rotted is mended. Raises ReplicaBroken."""
        if self.damage.judged and not self._rotten and not self.waits:
            try:
                note_mended(self._files, self._data, self.damage)
            except StorageFull as error:
                self._wait(error)
                return
            raise ReplicaBroken(f"{self.mending.batches} batches that had rotted are those of the other nodes again")

    def step(self, message: Message, bodies: Mapping[tuple[bytes, int, int], bytes] | None = None) -> None:
        """Take a message of a peer. Raises ReplicaBroken once all is staged, Poisoned, OSError."""
        if message.kind in (Kind.SHIP, Kind.PIECE):
            with suppress(InvalidBatch):
                self._got(message.sender, cm.decode(message.context), bodies or {})
        elif message.kind in FROM_LEADER and message.term >= self.term:
            self.leader, self.term, self._silent = message.sender, message.term, 0
            if not self.mending.is_busy and not self.waits:
                self.catching_up.begin(message.sender)

    def tick(self) -> None:
        """Time passed. Raises ReplicaBroken once all that had rotted is mended."""
        self._silent += 1
        if self._silent > LEADER_TICKS:
            self.leader = 0
        self._rest = max(0, self._rest - 1)
        if self.waits:
            self.catching_up.end()  # what is staged stays
        else:
            self.refused = ""
        self.catching_up.tick()
        self.handing_out.tick()
        self.mending.tick()
        self._go_on()
        self._idle += 1
        if self.mending.is_busy or self.catching_up.source:
            self._idle = 0
        elif self._idle > MEND_AGAIN_TICKS:
            self._begin_mending()

    @property
    def waits(self) -> bool:
        """Whether nothing is fetched until there is room on the disk."""
        return self.room.is_full or self._rest > 0

    def _wait(self, error: StorageFull) -> None:
        self.refused, self._rest = error.message, FULL_TICKS

    def _got(self, member: int, said: cm.Said, bodies: Mapping[tuple[bytes, int, int], bytes]) -> None:
        if isinstance(said, cm.AskWhole):
            self.handing_out.asked(member, said)
        elif isinstance(said, cm.WholeBatches):
            self.mending.take(member, said, beside(said, bodies))
        elif not isinstance(said, (cm.AskManifest, cm.AskBatches, cm.AskFile, cm.Staged)) and not self.waits:
            try:
                self._got_of_state(member, said, bodies)
            except StorageFull as error:
                self._wait(error)

    def _got_of_state(self, leader: int, said: cm.Shipped, bodies: Mapping[tuple[bytes, int, int], bytes]) -> None:
        if isinstance(said, cm.Manifest):
            term = checkpoints.received(said.checkpoint).term
            if term <= self.promised:  # of a lead in which this member may have acknowledged what it lost
                return
            self._promises.promise(self._order_id, max(term, self._promises.term(self._order_id)))
        if self.catching_up.take(leader, said, beside(said, bodies)):
            raise ReplicaBroken("the state that this member had lost is staged: it is installed when it is opened")

    def _ask(self, member: int, asked: cm.Asked | cm.AskWhole) -> None:
        self._send(Message(Kind.SHIP, member, self._node, context=cm.encode(asked)), [])

    def _hand_out(self, member: int, said: cm.Shipped | cm.WholeBatches, batches: Sequence[bytes]) -> None:
        self._send(Message(Kind.PIECE, member, self._node, context=cm.encode(said)), list(batches))

    def _own(self, shipped: cm.ShippedLog) -> LogEnd | None:
        """The place of the newest checkpoint in a log of ours, if all up to there is as it was."""
        path = log_path(self._data, shipped.topic, shipped.partition)
        seq, checksum = self._places.get(shipped.log_id, START)
        if not seq or any(each == path or each.startswith(f"{path}/") for each in self.damage.paths):
            return None
        try:
            return sound_end(self._files, path, shipped.log_id, seq, checksum)
        except (StorageError, OSError) as error:
            if not is_damage(error):
                raise
            return None

    def close(self) -> None:
        """Close what is open; what is staged goes with the next try."""
        self.catching_up.end()
        self.mending.close()


def sound_end(files: Files, path: str, log_id: bytes, seq: int, checksum: int) -> LogEnd | None:
    """The place behind batch `seq` of a log, if it has that checksum. Reads all up to there, and its snapshots.

    Raises StorageError, OSError where something of it cannot be read, or does not verify.
    """
    names, _ = layout.live_segments(files.listdir(path))
    if not names:
        return None
    end = layout.word(names[-1].generation, seq)
    snapshots.load_newest(files, path, log_id, first_seq=names[0].base_seq)
    found = NOTHING
    with closing(LogReader(path, files, limit=lambda: end, log_id=log_id)) as reader:
        cursor = reader.cursor_at(names[0].base_seq)
        while (chunk := cursor.next(CHUNK_BYTES, seq)) is not None:
            for batch in chunk.batches:
                batch.check()
                found = found.after(batch, 0)
    return found.at_start() if (found.seq, found.checksum) == (seq, checksum) else None


def _newest_checkpoint(files: Files, data: str, order_id: bytes) -> Checkpoint | None:
    """The newest checkpoint that can be read. Raises StorageFull, OSError where that cannot be told now."""
    path = f"{data}/{ORDER}"
    try:
        found = snapshots.load_newest(files, path, order_id)
        return None if found is None else checkpoints.decode(found.body, path)
    except (Corrupt, OSError) as error:
        if not is_damage(error):
            raise
        return None
