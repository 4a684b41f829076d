"""What a node wants done, and when it may be done. Pure.

Idea: the core never writes, sends or applies. It hands out a `Ready`, and goes on while that is done. Two orders
matter. A promise (term, vote) or an acknowledgement is written and synced before it leaves. And what is written is
written in the order of Readys.
"""

from __future__ import annotations

import msgspec

from . import reads
from .messages import Entry, Kind, Message, Promise, Snapshot
from .read_rounds import ReadState
from .state import RaftState, Role


class Standing(msgspec.Struct, frozen=True):
    """What this node is, and the leader it knows (0: none)."""

    role: Role
    leader: int


class Ready(msgspec.Struct):
    """What is to be done. Fields that have nothing to say are None or empty.

    `messages` may leave before anything here is written, unless `hold`: then this Ready changes term or vote, and they
    leave after its write is synced. Messages of later Readys do not overtake held ones.
    """

    standing: Standing | None = None  # the role or the leader changed
    promise: Promise | None = None  # to be written
    entries: list[Entry] = []  # to be written; they replace those from the first index on
    snapshot: Snapshot | None = None  # to be installed before `entries`; the log begins behind it
    committed: list[Entry] = []  # to be applied, once written here
    reads: list[ReadState] = []  # to be served, once their index is applied
    messages: list[Message] = []
    responses: list[Message] = []  # leave after the write is synced; those to itself: `settle`
    applied: Message | None = None  # asynchronous: given back by `settle` once `committed` is applied
    must_sync: bool = False  # entries or a promise; a bare commit needs no sync
    hold: bool = False


class ReadyQueue:
    """Remembers what was handed out, so that each thing is handed out once."""

    __slots__ = ("_own", "_promise", "_standing", "_state", "_unstored")

    def __init__(self, state: RaftState) -> None:
        self._state = state
        self._standing = Standing(state.role, state.leader)
        self._promise = state.promise()
        self._own: list[Message] = []  # what `advance` settles
        self._unstored = not state.options.asynchronous  # entries are written before they are applied, in one Ready

    def waits(self) -> bool:
        """There is something to do."""
        state, standing, promise = self._state, self._standing, self._promise
        return bool(
            state.outbox
            or state.after_write
            or state.log.unstable.has_waiting()
            or state.log.has_next(unstored=self._unstored)
            or state.read_states
            or state.role is not standing.role
            or state.leader != standing.leader
            or state.log.committed != promise.commit
            or state.term != promise.term
            or state.vote != promise.vote
        )

    def take(self) -> Ready:
        """Hand out all there is."""
        state, log = self._state, self._state.log
        reads.leave(state)
        ready = Ready(
            entries=log.unstable.waiting(),
            snapshot=log.unstable.waiting_snapshot(),
            committed=log.next_to_apply(unstored=self._unstored),
            reads=state.read_states,
            messages=state.outbox,
        )
        self._take_standing(ready)
        self._take_promise(ready)
        responses = state.after_write
        if writes(ready, responses) and (log.unstable.entries or ready.snapshot):
            responses.append(self._stored(ready))
        if ready.committed:
            ready.applied = Message(Kind.APPLIED, state.node, entries=ready.committed)
            log.apply(ready.committed, unstored=self._unstored)
        log.unstable.begin()
        state.outbox, state.after_write, state.read_states = [], [], []
        if state.options.asynchronous:
            ready.responses = responses
        else:
            self._keep(ready, responses)
        return ready

    def settled(self) -> list[Message]:
        """What counts as done once the surroundings advance."""
        own, self._own = self._own, []
        return own

    def _take_standing(self, ready: Ready) -> None:
        state, before = self._state, self._standing
        if state.role is not before.role or state.leader != before.leader:
            ready.standing = self._standing = Standing(state.role, state.leader)

    def _take_promise(self, ready: Ready) -> None:
        promise, before = self._state.promise(), self._promise
        if promise != before:
            ready.promise = self._promise = promise
        ready.hold = promise.term != before.term or promise.vote != before.vote
        ready.must_sync = ready.hold or bool(ready.entries)

    def _stored(self, ready: Ready) -> Message:
        state = self._state
        stored = Message(Kind.STORED, state.node, term=state.term, snapshot=ready.snapshot)
        if state.log.unstable.entries:
            stored.index, stored.log_term = state.log.last(), state.log.last_term()
        return stored

    def _keep(self, ready: Ready, responses: list[Message]) -> None:
        node = self._state.node
        ready.responses = [message for message in responses if message.to != node]
        self._own = [message for message in responses if message.to == node]
        if ready.applied:
            self._own.append(ready.applied)
            ready.applied = None


def writes(ready: Ready, responses: list[Message]) -> bool:
    """A Ready has something to write, or to wait with until what came before is written."""
    return bool(ready.entries or ready.promise or ready.snapshot or responses)
