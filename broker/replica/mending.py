"""Has batches that have rotted here from any other member that holds them whole, and writes them in their place.

Idea: the chain of a log says which bytes belong into a rotten range (storage/mending.py), so it does not matter which
member sends them: no leader is needed, no term and no vote. Three members with one rotten byte each mend each other,
also where none of them can be opened. A log is looked through in portions; for each rotten range the other members are
asked one after the other, as one of them may be away, may have rot in the same place, or may still be behind.

Contract: one question is out at a time. What a member answers is taken if it follows, and written once all of a range
is here and its last batch is the one that the log names; what does not fit is as good as no answer. Memory: one range,
of `RANGE_BYTES` at most. `ended` hears of each log: how many batches were mended, and what could not be; "" where the
log is whole.
Must not know Raft, or links.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from ...storage.errors import InvalidBatch, StorageError, is_damage
from ...storage.mending import RottenRange, look_for_rot, mend
from .catching_up import RETRY_TICKS
from .catchup_messages import AskWhole, WholeBatches

if TYPE_CHECKING:
    from ...storage.files import Files
    from ...storage.recovery import LogEnd
    from ...storage.scan import Bad

LOOKED_AT_ONCE = 8 << 20
"""Bytes of a log that are read in one tick."""

RANGE_BYTES = 64 << 20
"""A longer range is fetched with its log, from a leader."""

ROUNDS = 10
"""So often all other members are asked, as long as one of them is silent."""


class Mending:
    """See the module."""

    def __init__(
        self, files: Files, data: str, *, others: Callable[[], Collection[int]], ask: Callable[[int, AskWhole], None],
        ended: Callable[[str, int, str], None], durable: Callable[[bytes], int] = lambda log_id: 0,
    ) -> None:  # fmt: skip
        """`others`: numbers of the other members. `durable`: see `look_for_rot`. Logs are named by their paths below
        `data`."""
        self.batches = 0
        """That were mended."""
        self._files = files
        self._data = data
        self._others = others
        self._ask = ask
        self._ended = ended
        self._durable = durable
        self._logs: dict[str, None] = {}  # to be looked through, the first one now
        self._looking: Iterator[RottenRange | Bad | int] | None = None
        self._mended = 0  # batches of this log
        self._rotten: RottenRange | None = None  # what is asked for, how far it has come, and what has:
        self._end: LogEnd | None = None
        self._found: list[bytes] = []
        self._size = 0
        self._left: list[int] = []  # members to be asked in this round, after this one:
        self._source = 0
        self._rounds = self._ticks = 0
        self._is_silent = False  # some member, in this round

    @property
    def is_busy(self) -> bool:
        """Whether a log is being mended."""
        return bool(self._logs)

    def mends(self, log: str) -> bool:
        """Whether this log is being mended, or will be."""
        return log in self._logs

    def begin(self, log: str) -> None:
        """Something of a log has rotted. Harmless while it is being mended."""
        self._logs.setdefault(log)

    def tick(self) -> None:
        """Time passed: read on, or ask the next member where one is silent."""
        if self._rotten is None:
            self._look()
            return
        self._ticks += 1
        if self._ticks >= RETRY_TICKS:
            self._is_silent = True
            self._ask_next()

    def take(self, sender: int, said: WholeBatches, bodies: Sequence[bytes]) -> None:
        """A member answered."""
        rotten, end = self._rotten, self._end
        if rotten is None or end is None or sender != self._source:
            return
        if (said.log_id, said.seq) != (rotten.log_id, end.seq + 1):
            return
        try:
            for body in bodies if end.seq < rotten.last else ():
                self._end = end = rotten.follow(end, body)
                self._found.append(body)
                self._size += len(body)
                if end.seq == rotten.last:
                    break
        except InvalidBatch:
            bodies = ()  # it was damaged on its way, or is none that belongs here
        if end.seq == rotten.last:
            self._write(rotten)
        elif self._size > RANGE_BYTES:
            self._end_log(f"{_named(rotten)} are too many to be mended")
        elif bodies:
            self._put(self._source)
        else:
            self._ask_next()

    def close(self) -> None:
        """Stop."""
        self._logs.clear()
        self._looking = self._rotten = None

    # -- looking ------------------------------------------------------------------------------------

    def _look(self) -> None:
        log = next(iter(self._logs), None)
        if log is None:
            return
        if self._looking is None:
            self._looking = look_for_rot(self._files, f"{self._data}/{log}", self._durable)
        left = LOOKED_AT_ONCE
        try:
            for found in self._looking:
                if isinstance(found, RottenRange):
                    self._begin_asking(found)
                    return
                if not isinstance(found, int):
                    self._end_log(f"{found.file} is damaged at {found.position}: {found.reason}")
                    return
                left -= found
                if left <= 0:
                    return
        except (StorageError, OSError) as error:
            if is_damage(error):
                self._end_log(f"{log} cannot be read: {error}")
            else:
                self._looking = None  # the next tick begins anew
            return
        self._end_log("")

    def _end_log(self, problem: str) -> None:
        log = next(iter(self._logs))
        del self._logs[log]
        self._looking = self._rotten = self._end = None
        self._found = []
        mended, self._mended = self._mended, 0
        self._ended(log, mended, problem)

    # -- asking -------------------------------------------------------------------------------------

    def _begin_asking(self, rotten: RottenRange) -> None:
        self._rotten = rotten
        self._rounds = 0
        self._begin_round(rotten)

    def _begin_round(self, rotten: RottenRange) -> None:
        self._end, self._found, self._size = rotten.before, [], 0
        self._left, self._is_silent = sorted(self._others()), False
        self._rounds += 1
        self._ask_next()

    def _ask_next(self) -> None:
        rotten = self._rotten
        assert rotten is not None
        if self._left:
            self._put(self._left.pop(0))
        elif self._is_silent and self._rounds < ROUNDS:
            self._begin_round(rotten)
        else:
            missing = "none of the other nodes that answer has" if self._is_silent else "no other node has"
            self._end_log(f"{_named(rotten)} have rotted, and {missing} them whole")

    def _put(self, member: int) -> None:
        rotten, end, log = self._rotten, self._end, next(iter(self._logs))
        assert rotten is not None
        assert end is not None
        self._source, self._ticks = member, 0
        self._ask(member, AskWhole(log, rotten.log_id, end.seq + 1, rotten.last))

    def _write(self, rotten: RottenRange) -> None:
        try:
            mend(self._files, rotten, self._found)
        except InvalidBatch:  # another log than ours: what it sent follows ours, and ends elsewhere
            self._end, self._found, self._size = rotten.before, [], 0
            self._ask_next()
            return
        except FileNotFoundError:
            self._found.clear()  # retention took it
        except (StorageError, OSError) as error:
            if is_damage(error):
                self._end_log(f"{rotten.path} could not be mended: {error}")
            else:
                self._looking = self._rotten = self._end = None  # a full disk, for example: the next tick looks anew
                self._found = []
            return
        self.batches += len(self._found)
        self._mended += len(self._found)
        self._rotten, self._end, self._found = None, None, []


def _named(rotten: RottenRange) -> str:
    return f"batches {rotten.before.seq + 1} to {rotten.last} of {rotten.path}"
