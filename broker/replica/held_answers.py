"""Answers that wait for proof that this node still leads.

Idea: an answer may leave because an entry of this term was committed, or after a majority has confirmed the leader in a
round that began after the request came. What the engine answers while it applies commits passes; everything else is
held until the round of its turn is confirmed. All answers of a turn share one round.

Contract: a port like the one it wraps (engine/ports.py). Held answers are dropped with the lead: their connections are
told `Moved`. Deliveries, greetings and counters pass at once, but for greetings of clients that know of a later term:
where a majority follows this leader, none of such a term has served, as in a cluster that was made anew under its name.
Once a read has met damage, nothing leaves any more: the others have what is damaged here, and the replica closes. If
they cannot go on without it, readers wait until it has had from the others what they have. What none of them has is
left to readers, as where there is one broker: they verify columns, and so miss no more than what is damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...storage.cursor import Chunk
from ...storage.errors import Corrupt, ReadFailed
from ...transport.messages import ClusterState, Deliver, StatsReply, TransferBegun
from .damage import damage_of, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from ...storage.cursor import Cursor
    from ..engine.ports import Payload, Peer, Port

MENDING_S = 0.25
"""When a reader asks again for what other nodes are asked for."""
_EXEMPT = (Deliver, StatsReply, ClusterState, TransferBegun)


class HeldAnswers:
    """See the module. While `passing`, nothing is held."""

    def __init__(self, port: Port) -> None:
        self.passing = False
        self.damage: Corrupt | None = None
        """What a read has met. Nothing leaves from then on."""
        self.spared: Callable[[], bool] = lambda: True
        """Whether the others go on if this replica closes."""
        self.tell: Callable[[Corrupt], None] = lambda damage: None
        """Told of damage that this replica goes on with."""
        self.mends: Callable[[Corrupt], bool] = lambda damage: False
        """Whether what is damaged may yet come from the other nodes."""
        self._told: set[str] = set()
        self._port = port
        self.is_behind = port.is_behind
        self.open_delivery, self.close_delivery = port.open_delivery, port.close_delivery
        self.open_wake, self.wake, self.asleep, self.close_wake = (
            port.open_wake,
            port.wake,
            port.asleep,
            port.close_wake,
        )
        self.begin_reading, self.end_reading = port.begin_reading, port.end_reading
        self.stats = port.stats
        self._held: list[tuple[Peer, Any, Payload]] = []
        self._rounds: dict[bytes, list[tuple[Peer, Any, Payload]]] = {}
        self._confirmed: list[tuple[int, list[tuple[Peer, Any, Payload]]]] = []
        self._number = 0

    def reply(self, peer: Peer, message: Any, payload: Payload = b"") -> bool:
        """Send an answer, now or when it is proved. Returns what the port does, True for one that is held."""
        if self.damage is not None:
            return True
        if self.passing or isinstance(message, _EXEMPT):
            return self._port.reply(peer, message, payload)
        self._held.append((peer, message, payload))
        return True

    def read(self, cursor: Cursor, max_bytes: int, limit_seq: int, token: Hashable) -> Any:
        """As the port does, and verifies columns. Raises what the port does."""
        try:
            found = self._port.read(cursor, max_bytes, limit_seq, token)
        except Corrupt as error:
            raise self.meet(error) from error
        except OSError as error:
            if (damage := damage_of(error, cursor.path)) is not None:
                self._tell_of(damage, error)
            raise
        if isinstance(found, Chunk):
            try:
                verify(found.batches, cursor.path)
            except Corrupt as error:
                self._tell_of(error, error)
        return found

    def _tell_of(self, damage: Corrupt, error: Corrupt | OSError) -> None:
        """Raise what the reader is told of damage, if that is more than it may see without other copies."""
        if (told := self.meet(damage)) is not damage or self.damage is not None:
            raise told from error

    def meet(self, damage: Corrupt) -> Corrupt | ReadFailed:
        """A read has met damage. Returns what the reader is told, if anything leaves here any more.

        The replica closes, and others tell clients what is damaged here. Where the others cannot go on without it, it
        stays, and readers ask again while it has from the others what they have.
        """
        if self.damage is not None or self.spared():
            self.damage = self.damage or damage
            return damage
        if damage.path not in self._told:
            self._told.add(damage.path)
            self.tell(damage)
        if self.mends(damage):
            told = ReadFailed(f"{damage.message}: the other nodes are asked for what has rotted here, ask again")
            told.retry_after = MENDING_S
            return told
        return damage

    def forget_told(self) -> None:
        """Tell of damage again that is met from now on."""
        self._told.clear()

    def deliver(self, session: int, message: Deliver, payload: Payload) -> bool:
        """As the port does; nothing where a read has met damage, which the delivery may have gone around."""
        return self.damage is not None or self._port.deliver(session, message, payload)

    def begin_round(self) -> bytes | None:
        """The name of a round for all that is held now; None without any."""
        if not self._held:
            return None
        self._number += 1
        context = self._number.to_bytes(8, "little")
        self._rounds[context], self._held = self._held, []
        return context

    def confirm(self, context: bytes, index: int) -> None:
        """A round is confirmed: its answers leave once entry `index` is applied."""
        answers = self._rounds.pop(context, None)
        if answers is not None:
            self._confirmed.append((index, answers))

    def release(self, applied: int) -> None:
        """Send what is confirmed for entries up to `applied`."""
        ready = [answers for index, answers in self._confirmed if index <= applied]
        self._confirmed = [each for each in self._confirmed if each[0] > applied]
        for answers in ready:
            for peer, message, payload in answers:
                self._port.reply(peer, message, payload)

    def drop(self) -> None:
        """The lead is lost: nothing of it is proved any more."""
        self._held, self._rounds, self._confirmed = [], {}, []
