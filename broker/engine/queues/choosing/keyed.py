"""Choosing by key: order, concurrency and rate limits per key, and fair turns between keys.

Idea: candidates are taken in order: held records (skipped before), then retries, then untouched records beyond the
frontier. Each is taken or skipped. An untouched record that is skipped becomes held when a later one is taken,
so that the frontier stays one number. `look_ahead` bounds how many may be skipped.

Contract: decides, and changes only its own state: turns and rate buckets, which are local to a node and not logged.
Higher priorities come first. In a group with order "key", no record is taken while another of its key is leased, or an
earlier one is retrying or held. Must not know where keys are read. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice
from operator import attrgetter
from typing import NamedTuple

from .....transport.queue_messages import FOREVER_US
from ...tables.queues.keys import OWN, turn_of
from ...tables.queues.leases import Run
from ...tables.queues.pace import per_second
from ...tables.queues.queue import Queue
from ...tables.queues.settings import QueueSettings
from .rates import Rates

UNLIMITED = 1 << 62
"""Records of one key that may be leased at once, where the group sets no limit."""


class Candidate(NamedTuple):
    """A record that could be leased."""

    offset: int
    key: int
    attempt: int = 0  # how many leases it has had that count
    ready_us: int = 0  # not before
    level: int = 0  # its priority


class KeyedChoice(NamedTuple):
    """The records of a lease."""

    taken: list[Candidate]
    held: list[tuple[int, int]]  # offset and key of untouched records that were skipped
    frontier: int  # afterwards; -1: where it was
    next_us: int  # when time alone lets something go that could not; FOREVER_US: then nothing does

    @property
    def runs(self) -> list[Run]:
        """As LeaseGranted has them: neighbours under the same attempt are one run."""
        runs: list[Run] = []
        for offset, _, attempt, _, _ in self.taken:
            if runs and (sum(runs[-1][:2]), runs[-1][2]) == (offset, attempt + 1):
                runs[-1] = (runs[-1][0], runs[-1][1] + 1, attempt + 1)
            else:
                runs.append((offset, 1, attempt + 1))
        return runs

    @property
    def keys(self) -> list[int]:
        """As LeaseGranted has them."""
        return [candidate.key for candidate in self.taken]


def looks_at_keys(settings: QueueSettings) -> bool:
    """Whether a group's settings make it look at keys."""
    limited = settings.key_concurrency is not None or settings.key_rate_per_s is not None
    return settings.order == "key" or settings.fair or limited


def is_keyed(queue: Queue) -> bool:
    """Whether records of a group have to be chosen here: by its settings, or because some are held from before."""
    return looks_at_keys(queue.settings) or bool(queue.held)


class Chooser:
    """Chooses for one group on one partition."""

    def __init__(self) -> None:
        self._rates = Rates[int]()
        self._turn = -1  # place on the ring of the key that was served last

    def choose(
        self,
        settings: QueueSettings,
        busy: Mapping[int, int],
        known: Iterable[Candidate],
        fresh: Iterator[Candidate],
        room: int,
        most: int,
        now_us: int,
    ) -> KeyedChoice:
        """At most `most` records.

        Args:
            busy: how many records of a key are leased.
            known: what is held and what waits, in any order.
            fresh: untouched records in order of offset; no more of them are asked for than are looked at.
            room: how many more may be held.
        """
        judge = _Judge(settings, busy, self._rates, now_us)
        before = sorted(known, key=_rank)
        seen: list[Candidate] = []
        if settings.fair:
            seen.extend(islice(fresh, room))
            taken = self._in_turns(judge, sorted([*before, *seen], key=_rank), most)
        else:
            taken = _first_to_last(judge, before, fresh, seen, room, most)
        return _choice(taken, seen, judge.next_us)

    def again_us(self, settings: QueueSettings, key: int, now_us: int) -> int:
        """When the rate of a key admits its next record; 0: at once."""
        rate = settings.key_rate_per_s
        return 0 if rate is None or key == OWN else self._rates.again_us(key, per_second(rate), now_us)

    def _in_turns(self, judge: _Judge, window: list[Candidate], most: int) -> list[Candidate]:
        taken: list[Candidate] = []
        for _, level in groupby(window, key=attrgetter("level")):
            by_key: defaultdict[int, deque[Candidate]] = defaultdict(deque)
            for candidate in level:
                by_key[turn_of(candidate.offset, candidate.key)].append(candidate)
            self._rotate(judge, by_key, taken, most)
        return taken

    def _rotate(self, judge: _Judge, by_key: dict[int, deque[Candidate]], taken: list[Candidate], most: int) -> None:
        """One record of each key in turn, until none can go."""
        ring = sorted(by_key)
        ring = deque(ring[(start := bisect_right(ring, self._turn)) :] + ring[:start])
        while ring and len(taken) < most:
            turn = ring.popleft()
            line = by_key[turn]
            while line:
                candidate = line.popleft()
                if judge.lets_go(candidate):
                    taken.append(candidate)
                    self._turn = turn
                    ring.append(turn)
                    break


class _Judge:
    """Whether a candidate may go, given those that were asked about before it."""

    def __init__(self, settings: QueueSettings, busy: Mapping[int, int], rates: Rates[int], now_us: int) -> None:
        self._in_order = settings.order == "key"
        rate = settings.key_rate_per_s
        self._pace = None if rate is None else per_second(rate)
        self._most = 1 if self._in_order else settings.key_concurrency or UNLIMITED
        self._busy = dict(busy)
        self._closed: set[int] = set()  # keys of which nothing more can go now
        self._rates = rates
        self._now_us = now_us
        self.next_us = FOREVER_US

    def lets_go(self, candidate: Candidate) -> bool:
        """Whether it goes."""
        key = candidate.key
        if key in self._closed:
            return False
        if self._in_order and key != OWN:
            self._closed.add(key)  # whatever becomes of this one: the next of its key comes after it
        if candidate.ready_us > self._now_us:
            self.next_us = min(self.next_us, candidate.ready_us)
            return False
        return key == OWN or self._within_limits(key)

    def _within_limits(self, key: int) -> bool:
        if self._busy.get(key, 0) >= self._most:
            self._closed.add(key)
            return False
        if self._pace is not None:
            again_us = self._rates.take(key, self._pace, self._now_us)
            if again_us:
                self.next_us = min(self.next_us, again_us)
                self._closed.add(key)
                return False
        self._busy[key] = self._busy.get(key, 0) + 1
        return True


def _first_to_last(
    judge: _Judge, before: list[Candidate], fresh: Iterator[Candidate], seen: list[Candidate], room: int, most: int
) -> list[Candidate]:
    """Choose in order, reading `fresh` into `seen` until there are enough or no more can be held."""
    taken: list[Candidate] = []
    for candidate in before:
        if len(taken) == most:
            return taken
        if judge.lets_go(candidate):
            taken.append(candidate)
    while room > 0 and len(taken) < most and (candidate := next(fresh, None)) is not None:
        seen.append(candidate)
        if judge.lets_go(candidate):
            taken.append(candidate)
        else:
            room -= 1
    return taken


def _choice(taken: list[Candidate], seen: list[Candidate], next_us: int) -> KeyedChoice:
    """Untouched records before the last one taken of them are held; those behind it stay untouched."""
    gone = {candidate.offset for candidate in taken}
    last = max((candidate.offset for candidate in seen if candidate.offset in gone), default=-1)
    held = [(each.offset, each.key) for each in seen if each.offset < last and each.offset not in gone]
    return KeyedChoice(taken, held, last + 1 if last >= 0 else -1, next_us)


def _rank(candidate: Candidate) -> tuple[int, int]:
    return -candidate.level, candidate.offset
