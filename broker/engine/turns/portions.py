"""Portions: work too large for one turn, done a little per turn, connections taking turns.

Idea: such work is a generator that yields every few tens of microseconds, or with the count of such units it used. A
connection's requests run in order, and connections get one step each in turn, so a question about a thousand
partitions delays small requests by a moment at most.

Contract: each step leaves a consistent state, since anything may happen before the next one: topics go, partitions
grow, ends move. Memory: JOBS_MAX requests per connection. Must not know the work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, TypeVar

from ....storage.errors import Error, ReadFailed
from ...errors import LimitReached

if TYPE_CHECKING:
    from ..ports import Peer, Work
    from .replies import Gather

STEPS = 4
"""Limit of one portion."""

JOBS_MAX = 256
"""Requests of one connection that are begun or wait to be."""

Refuse = Callable[[Error], None]
Done = TypeVar("Done")
Each = TypeVar("Each")


class PortionedJob:
    """One piece of work, and what to do with its error."""

    __slots__ = ("begun", "changes", "refuse", "work")

    def __init__(self, work: Work, refuse: Refuse, *, changes: bool, begun: bool = False) -> None:
        self.work = work
        self.refuse = refuse
        self.changes = changes
        self.begun = begun

    def step(self) -> int:
        """Go on with it. Returns the steps it took, 0 when it is done."""
        self.begun = True
        try:
            return next(self.work) or 1
        except StopIteration:
            pass
        except Error as error:
            self.refuse(error)
        except OSError as error:
            self.refuse(ReadFailed(f"the broker cannot read its files now: {error}"))
        return 0


class Portions:
    """Work by connection."""

    def __init__(self) -> None:
        self.jobs: dict[Peer, deque[PortionedJob]] = {}
        """By peer, for others only to see whether there are any."""
        self._resting: dict[Peer, deque[PortionedJob]] = {}
        self._owed = 0  # steps that a portion took too many
        self.worked: dict[Peer, int] = {}
        """The steps of the last portion, by peer."""

    def begin(self, peer: Peer, work: Work, refuse: Refuse, *, changes: bool) -> None:
        """Do a portion now when the peer has nothing else here, and the rest later. Raises LimitReached.

        What `changes` something and was begun is brought to its end though the peer goes away.
        """
        job, jobs = PortionedJob(work, refuse, changes=changes), self._resting.get(peer, self.jobs.get(peer))
        if jobs is None:
            left = STEPS
            while left > 0:
                steps = job.step()
                if not steps:
                    return
                left -= steps
            self.jobs.setdefault(peer, deque()).appendleft(job)
        elif len(jobs) >= JOBS_MAX:
            raise LimitReached(
                f"{JOBS_MAX} requests of this connection are worked on, which is the limit: wait for answers first"
            )
        else:
            jobs.append(job)

    def add(self, peer: Peer, work: Work, refuse: Refuse | None = None, *, changes: bool = False) -> None:
        """Do it later, in turn. It counts as begun. Without `refuse` it raises nothing."""
        jobs = self._resting[peer] if peer in self._resting else self.jobs.setdefault(peer, deque())
        jobs.append(PortionedJob(work, refuse or _never, changes=changes, begun=True))

    def work(self) -> bool:
        """Do a portion. Returns whether there is more to do."""
        self.worked = {}
        if not self.jobs:
            self._owed = 0
            return False
        left = STEPS - self._owed
        while left > 0 and self.jobs:
            peer, jobs = next(iter(self.jobs.items()))
            steps = jobs[0].step()  # which may add more for the same peer
            self.worked[peer] = self.worked.get(peer, 0) + (steps or 1)
            if not steps:
                jobs.popleft()
            del self.jobs[peer]
            if jobs:
                self.jobs[peer] = jobs  # behind the others
            left -= steps or 1
        self._owed = max(0, -left)
        return bool(self.jobs)

    def end(self) -> None:
        """Do no more of anything."""
        for jobs in (*self.jobs.values(), *self._resting.values()):
            for job in jobs:
                job.work.close()
        self.jobs.clear()
        self._resting.clear()

    def rest(self, peer: Peer) -> None:
        """Go on with nothing of a peer until `resume`."""
        self._resting.setdefault(peer, self.jobs.pop(peer, deque()))

    def resume(self, peer: Peer) -> None:
        """Go on with what a peer wants."""
        jobs = self._resting.pop(peer, None)
        if jobs:
            self.jobs[peer] = jobs

    def drop(self, peer: Peer) -> None:
        """The peer is gone, and with it all that is not half done."""
        self.resume(peer)
        jobs = self.jobs.pop(peer, ())
        kept = deque(job for job in jobs if job.changes and job.begun)
        for job in jobs:
            if not (job.changes and job.begun):
                job.work.close()
        if kept:
            self.jobs[peer] = kept


def spread(over: Iterable[Each], gather: Gather, propose: Callable[[Each], None]) -> Work:
    """Propose to one partition after the other, each with its waiter of `gather`, which answers for all of them.

    What can be checked was: an error fails the others as a failing log would.
    """
    try:
        for each in over:
            propose(each)
            yield
    except Error as error:
        gather.one().failed(error)
    gather.ready()


def finished(work: Generator[int | None, None, Done]) -> Done:
    """Run work to its end at once, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value


def _never(error: Error) -> None:
    raise error
