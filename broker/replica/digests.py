"""Digests: what the logs of a member add up to at one entry, and what a majority of the members says.

Idea: after an entry that asks for digests, each member takes those of its logs at that entry: some logs in each turn,
and a log that is about to move before it does. Where one turn may move very many logs, an entry asks for a part of
them, which its number chooses, and entries ask the more often. The leader collects them. What a majority has is right;
a member that has something else hears of it, and closes.

Contract: `OwnDigests` keeps those of the newest `ROUNDS` such entries; a log that has not moved is not digested again.
`DigestVotes` judges by voters alone. What is lost on the way is lost: a later entry asks again. Pure.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from itertools import islice
from typing import Protocol

import msgspec
from msgspec import Struct
from xxhash import xxh3_64_intdigest

from ...storage.errors import InvalidBatch
from ..engine.logs.catalogue import CatalogueBody
from ..engine.tables.state import SnapshotBody

ROUNDS = 4
"""Entries that asked for digests, of which these are remembered."""

PART = 64
"""Logs that one entry asks for, about: all of them may move in the next turn, and a large state takes milliseconds."""

AT_ONCE = 8
"""Logs that are digested in one turn, beside those that are about to move."""

TOLD_AT_ONCE = 256
"""Digests in one message."""

_PLACE = struct.Struct("<qQQ")


class Digested(Protocol):
    """What a log adds up to."""

    seq: int

    def digest(self) -> int:
        """See PartitionState."""
        ...


class DigestReport(Struct, array_like=True, frozen=True):
    """Digests by log at one entry: those of a member, or those that a majority has.

    `layout`: that of the states. Members whose versions lay states out differently are not compared.
    """

    layout: int
    entry: int
    logs: list[tuple[bytes, int]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(DigestReport)


@cache
def layout() -> int:
    """Of the states of this version."""
    return xxh3_64_intdigest(repr(msgspec.inspect.multi_type_info([SnapshotBody, CatalogueBody])).encode())


def encode(entry: int, logs: Iterable[tuple[bytes, int]]) -> bytes:
    """Digests for another member."""
    return _encoder.encode(DigestReport(layout(), entry, list(logs)))


def decode(said: bytes) -> DigestReport:
    """What another member said. Raises InvalidBatch."""
    try:
        return _decoder.decode(said)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidBatch(f"no digests: {error}") from None


def part_of(log_id: bytes, entry: int, parts: int) -> int:
    """In which part of all logs a log is, as an entry sees it: the same on every member, another for each entry."""
    return xxh3_64_intdigest(log_id, seed=entry) % parts


class OwnDigests:
    """Those of this member. `state_of`: what a log adds up to now; None for one that is not open."""

    def __init__(self, entry: int, every: int, state_of: Callable[[bytes], Digested | None]) -> None:
        """Nothing is known of entries up to `entry`; one asks for digests `every` entries later."""
        self._asked = entry  # the newest entry that asks, proposed or applied
        self._every = every
        self._parts = 1  # of all logs, of which an entry asks for one
        self._state_of = state_of
        self._entry = entry
        self._left: dict[bytes, tuple[int, int]] = {}  # logs to be digested, and their places at the entry
        self._known: dict[bytes, tuple[int, int]] = {}  # seq and digest
        self._found: dict[int, dict[bytes, int]] = {}
        self._untold: deque[tuple[int, bytes]] = deque()

    def asks(self, entry: int) -> bool:
        """Whether an entry that is proposed now asks for digests."""
        if entry - self._asked < self._every // self._parts:
            return False
        self._asked = entry
        return True

    def begin(self, entry: int, places: Mapping[bytes, tuple[int, int]]) -> None:
        """An entry that asks is applied; the logs stand at these places."""
        self._asked = self._entry = entry
        parts = self._parts = min(-(-len(places) // PART) or 1, self._every)
        self._left = {log_id: place for log_id, place in places.items() if part_of(log_id, entry, parts) == 0}
        self._known = {log_id: known for log_id, known in self._known.items() if log_id in places}
        self._found[entry] = {}
        while len(self._found) > ROUNDS:
            del self._found[next(iter(self._found))]

    def moving(self, logs: Collection[bytes]) -> None:
        """These logs move next."""
        for log_id in logs if self._left else ():
            if log_id in self._left:
                self._digest(log_id)

    def work(self) -> None:
        """Digest some more."""
        for log_id in list(islice(self._left, AT_ONCE)):
            self._digest(log_id)

    def _digest(self, log_id: bytes) -> None:
        place, state = self._left.pop(log_id), self._state_of(log_id)
        if state is None:
            return  # its topic is deleted
        known = self._known.get(log_id)
        if known is None or known[0] != state.seq:
            known = self._known[log_id] = (state.seq, xxh3_64_intdigest(_PLACE.pack(*place, state.digest())))
        self._found[self._entry][log_id] = known[1]
        self._untold.append((self._entry, log_id))

    def take(self) -> DigestReport | None:
        """Digests that were not told yet, of one entry; None without any."""
        untold, entry, logs = self._untold, 0, list[tuple[bytes, int]]()
        while untold and len(logs) < TOLD_AT_ONCE and (not logs or untold[0][0] == entry):
            entry, log_id = untold.popleft()
            if (digest := self._found.get(entry, {}).get(log_id)) is not None:
                logs.append((log_id, digest))
        return DigestReport(layout(), entry, logs) if logs else None

    def differing(self, right: DigestReport) -> bytes | None:
        """A log of which this member has another digest than a majority; None if there is none."""
        found = self._found.get(right.entry, {})
        return next((log_id for log_id, digest in right.logs if found.get(log_id, digest) != digest), None)


class DigestVotes:
    """What the members say, as a leader hears it. `undecided`: logs of which members differ without a majority for
    either, and these members."""

    def __init__(self) -> None:
        self.undecided: dict[bytes, list[int]] = {}
        self._rounds: dict[int, dict[bytes, dict[int, int]]] = {}  # by entry, log and member
        self._right: dict[int, dict[int, dict[bytes, int]]] = {}  # for members that differ, by entry and log

    def heard(self, node: int, said: DigestReport, voters: Collection[int]) -> None:
        """A member has told some digests."""
        if said.layout != layout():
            return
        found = self._rounds.setdefault(said.entry, {})
        while len(self._rounds) > ROUNDS:
            del self._rounds[min(self._rounds)]
        for log_id, digest in said.logs:
            votes = found.setdefault(log_id, {})
            votes[node] = digest
            self._judge(said.entry, log_id, votes, voters)

    def _judge(self, entry: int, log_id: bytes, votes: Mapping[int, int], voters: Collection[int]) -> None:
        counts = Counter(votes[node] for node in votes if node in voters)
        right, most = counts.most_common(1)[0] if counts else (0, 0)
        if 2 * most > len(voters):
            self.undecided.pop(log_id, None)
            for node, digest in votes.items():
                if digest != right:
                    self._right.setdefault(node, {}).setdefault(entry, {})[log_id] = right
        elif len(counts) > 1:
            self.undecided[log_id] = sorted(votes)

    def right(self, node: int) -> DigestReport | None:
        """What a majority has where a member has told something else, of one entry; None if that is nothing new."""
        found = self._right.get(node)
        if not found:
            return None
        entry = next(iter(found))
        logs = found.pop(entry)
        return DigestReport(layout(), entry, list(islice(logs.items(), TOLD_AT_ONCE)))
