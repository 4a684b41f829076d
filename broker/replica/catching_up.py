"""The lagging member's side of a catch-up: asks a leader for one piece after the other, until all is staged.

Idea: it begins when a leader offers a state, or, for a member that has lost something, with the first word of a leader.
One question is out at a time. What does not come is asked for again; a leader that has withdrawn its manifest, or
another leader, is asked for a new one, and what was staged before is used as far as it fits.

Contract: nothing but `DATA/staged/` is written. `take` returns True once the install record is durable: the replica is
then closed and opened anew, which installs it. Messages of anything but what was asked for last are ignored.
Must not know Raft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ...storage.errors import BadChecksum, Corrupt, InvalidBatch
from ...storage.log import LogOptions
from .catchup_messages import (
    AskBatches,
    Asked,
    AskFile,
    AskManifest,
    FilePiece,
    Manifest,
    Shipped,
    ShippedBatches,
    Staged,
    Withdrawn,
    progress,
)
from .staging import OwnEnd, StagedState

if TYPE_CHECKING:
    from ...storage.files import Files

RETRY_TICKS = 10
"""After so long without an answer a question is asked again."""

TRIES = 3
"""So often, then for another manifest."""

Ask = Callable[[int, Asked], None]
"""Ask a leader."""


class CatchUp:
    """See the module. `promised`: the term of a member that has lost something; 0 of one that only lags."""

    def __init__(
        self, files: Files, data: str, order_id: bytes, *, own: OwnEnd, ask: Ask, promised: int = 0,
        options: LogOptions | None = None,
    ) -> None:  # fmt: skip
        self.source = 0
        self.promised = promised
        self.fetched_bytes = 0
        self._files = files
        self._data = data
        self._order_id = order_id
        self._own = own
        self._ask = ask
        self._options = options or LogOptions()
        self._state: StagedState | None = None
        self._question: Asked | None = None
        self._ticks = self._tries = 0

    def begin(self, leader: int) -> None:
        """A leader has what this member lacks. Harmless while it is being fetched from there."""
        if leader != self.source:
            self.end()
            self.source = leader
            self._put(AskManifest(self.promised))

    def end(self) -> None:
        """Stop; what is staged stays."""
        if self._state is not None:
            self._state.close()
        self.source, self._state, self._question = 0, None, None

    def progress(self) -> str:
        """What is fetched, and how far; "" for nothing yet."""
        state = self._state
        if state is None or state.current is None:
            return ""
        current = state.current
        return progress(current.shipped, current.written, state.logs.index(current) + 1, len(state.logs))

    def tick(self) -> None:
        """Time passed: ask again for what did not come."""
        if self._question is None:
            return
        self._ticks += 1
        if self._ticks >= RETRY_TICKS:
            self._ticks = 0
            self._tries += 1
            if self._tries > TRIES:
                self.end()  # its leader, or the next one, begins it anew
                return
            self._ask(self.source, self._question)

    def take(self, sender: int, message: Shipped, batches: Sequence[bytes]) -> bool:
        """A leader sent something. Returns whether all is staged, and recorded.

        Raises StorageFull, Poisoned, OSError.
        """
        if not self.awaits(sender, message):
            return False
        if isinstance(message, Withdrawn):
            self._begin_anew()
            return False
        if isinstance(message, Manifest):
            self.source = sender
            self._state = StagedState(self._files, self._data, self._order_id, message, self._own, self._options)
        elif not self._add(message, batches):
            return False
        return self._go_on()

    def awaits(self, sender: int, message: Shipped) -> bool:
        """Whether a message is what was asked for last, or withdraws it.

        A leader may take longer for a manifest than this member has asked for it: one that comes then is as good.
        """
        question = self._question
        if isinstance(message, Manifest):
            return not self.source or (sender == self.source and isinstance(question, AskManifest))
        if sender != self.source:
            return False
        if isinstance(message, ShippedBatches):
            begin = message.entry, message.log_id, message.seq
            return isinstance(question, AskBatches) and (question.entry, question.log_id, question.seq) == begin
        if isinstance(message, FilePiece):
            place = message.entry, message.log_id
            return isinstance(question, AskFile) and (question.entry, question.log_id) == place
        return isinstance(question, (AskBatches, AskFile)) and question.entry == message.entry

    def _add(self, message: ShippedBatches | FilePiece, batches: Sequence[bytes]) -> bool:
        """Whether what was asked for could be used."""
        state = self._state
        if state is None or state.current is None:
            return False
        if isinstance(message, ShippedBatches):
            try:
                state.current.add_batches(batches)
            except BadChecksum:  # damaged on its way, or where it came from: nothing of this member is
                return False
            except InvalidBatch:
                if state.current.replaced:
                    self._begin_from_nothing()
                    return False
                state.replace_current()
            self.fetched_bytes += sum(map(len, batches))
        else:
            state.current.add_piece(message.name, message.position, message.data)
            self.fetched_bytes += len(message.data)
        return True

    def _go_on(self) -> bool:
        state = self._state
        assert state is not None
        try:
            question = state.next_ask()
        except Corrupt:  # a snapshot that was fetched is damaged
            self._begin_from_nothing()
            return False
        if question is not None:
            self._put(question)
            return False
        state.finish(damaged=bool(self.promised))
        self._question = None
        self._ask(self.source, Staged(state.manifest.entry))
        return True

    def _begin_from_nothing(self) -> None:
        """What is staged does not fit together."""
        assert self._state is not None
        self._state.close()
        self._files.remove_tree(self._state.path)
        self._begin_anew()

    def _begin_anew(self) -> None:
        source = self.source
        self.end()
        self.begin(source)

    def _put(self, question: Asked) -> None:
        self._question, self._ticks, self._tries = question, 0, 0
        self._ask(self.source, question)
