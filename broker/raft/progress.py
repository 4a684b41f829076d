"""How far one member's log is, in the eyes of the leader. Pure.

Idea: three states. PROBE sends one message and waits, to find where the logs agree. REPLICATE streams ahead of the
acknowledgements. SNAPSHOT waits until a state has been installed.

Invariant: match < next. `match` only grows while the leader leads; in REPLICATE, entries below `next` were sent.
"""

from __future__ import annotations

from enum import Enum

from .inflight import Inflight


class FollowerPace(Enum):
    """How a follower is fed."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2


class PeerProgress:
    """One member, as the leader sees it."""

    __slots__ = (
        *("active", "inflight", "learner", "match", "next", "pace", "paused", "pending_snapshot", "sent_commit"),
    )

    def __init__(self, upcoming: int, inflight: Inflight, *, learner: bool, active: bool = False) -> None:
        self.match = 0  # its log agrees up to here
        self.next = upcoming  # the entry that is sent next
        self.pace = FollowerPace.PROBE
        self.paused = False  # until it is heard of
        self.pending_snapshot = 0
        self.sent_commit = 0  # the highest commit that it was told
        self.active = active  # heard of since the last check of the quorum
        self.inflight = inflight
        self.learner = learner

    @property
    def blocked(self) -> bool:
        """No append may be sent now."""
        return self.paused or self.pace is FollowerPace.SNAPSHOT

    def probe(self) -> None:
        """FollowerPace it one message at a time: behind the snapshot that it may have, or else behind its match."""
        behind = self.pending_snapshot if self.pace is FollowerPace.SNAPSHOT else 0
        self._turn(FollowerPace.PROBE)
        self.next = max(self.match, behind) + 1
        self._lower_commit()

    def replicate(self) -> None:
        """Stream from its match on."""
        self._turn(FollowerPace.REPLICATE)
        self.next = self.match + 1

    def await_snapshot(self, index: int) -> None:
        """A snapshot at `index` is on its way."""
        self._turn(FollowerPace.SNAPSHOT)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index

    def sent(self, count: int, size: int, commit: int) -> None:
        """An append left with `count` entries of `size` bytes, and the leader's commit."""
        if self.pace is FollowerPace.REPLICATE:
            if count:
                self.next += count
                self.inflight.add(self.next - 1, size)
            self.paused = self.inflight.full
        elif count:
            self.paused = True
        self.sent_commit = commit

    def commit_is_news(self, commit: int) -> bool:
        """It has not heard of `commit`, and has entries in its log, or on their way, which that would commit."""
        return self.sent_commit < commit and self.sent_commit < self.next - 1

    def acknowledged(self, index: int) -> bool:
        """Its log agrees up to `index`; False when that is no news."""
        if index <= self.match:
            return False
        self.match = index
        self.next = max(self.next, index + 1)
        self.paused = False
        return True

    def rejected(self, index: int, hint: int) -> bool:
        """It refused an append behind `index` and proposes `hint`; False when the refusal is of an older append."""
        if self.pace is FollowerPace.REPLICATE:
            if index <= self.match:
                return False
            self.next = self.match + 1
        else:
            if self.next - 1 != index:
                return False
            self.next = max(min(index, hint + 1), self.match + 1)
            self.paused = False
        self._lower_commit()
        return True

    def _turn(self, pace: FollowerPace) -> None:
        self.pace = pace
        self.paused = False
        self.pending_snapshot = 0
        self.inflight.clear()

    def _lower_commit(self) -> None:
        self.sent_commit = min(self.sent_commit, self.next - 1)
