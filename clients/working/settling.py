"""Reports the outcomes of tasks: gathered, sent together, resent until acknowledged.

Idea: outcomes gather for a moment. When a request for a lease goes out that is answered at once they ride on it;
else they go out by themselves, at the latest when a call waits for them or the next turn comes.

Contract: settling is idempotent (the broker remembers leases settled by their worker), so outcomes that may have
been lost are sent again. A refusal reaches exactly the futures of that lease. Never waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...broker.errors import LeaseLost
from ...storage.errors import Error
from ...transport.failures import error_from
from ...transport.message import LIST_MAX
from ...transport.messages import Answer, Failure, Topic
from ...transport.queue_messages import Refusal, Settle, Settled, SettleTasks
from ..connection.question import Question, raised
from ..connection.steps import FOREVER
from ..connection.unseen import keep, raise_first
from .leases import Gathering, Held, SettleFuture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..connection.connection import Connection

GATHER_S = 0.002
"""How long outcomes gather at most if no call waits for them."""

GATHER_MAX = 1024
"""Tasks whose outcomes go out at once."""

GATHER_BYTES = 256 << 10
"""Results that go out at once."""

UNCONFIRMED_MAX = 1 << 16
"""Tasks whose outcomes may be on their way before `ack_nowait` waits."""

RANGES_MAX = LIST_MAX - GATHER_MAX
"""Offsets and results that one call adds to a Settle: what a broker takes, with those that were gathered before."""

BACKOFF_MIN_S, BACKOFF_MAX_S = 0.05, 2.0
"""Between two tries of what the broker refused for now (its disk is full, for example)."""


class Settling:
    """See the module. `failed` are futures whose errors may not have been raised."""

    def __init__(self, connection: Connection, topic: Topic, group: str) -> None:
        self.failed: list[SettleFuture] = []
        self.unconfirmed = 0
        self._connection = connection
        self._topic = topic.topic
        self._group = group
        self.gathered: dict[tuple[Held, int, int, str], Gathering] = {}
        """What waits to be sent."""
        self._count = 0
        self._bytes = 0
        self.send_at = FOREVER
        """When what was gathered goes by itself; `again_at`: what is tried again."""
        self._out: dict[Gathering, None] = {}  # said, and not over
        self._again: list[Gathering] = []
        self.again_at = FOREVER
        self._backoff_s = 0.0
        self._trouble: Failure | None = None

    @property
    def full(self) -> bool:
        """Whether no more should be gathered before some is confirmed."""
        return self.unconfirmed >= UNCONFIRMED_MAX

    @property
    def trouble(self) -> str:
        """Why the broker does not take outcomes, for error messages."""
        return "" if self._trouble is None else f" (the broker said: {self._trouble.message})"

    def gather(
        self,
        lease: Held,
        verb: int,
        delay_ms: int,
        reason: str,
        offsets: Sequence[int],
        results: list[tuple[int, bytes]],
        future: SettleFuture,
    ) -> None:
        """Note an outcome; many are sent at once."""
        if len(offsets) > RANGES_MAX and (results or len(offsets) < lease.count):
            for at in range(0, len(offsets), RANGES_MAX):
                part = offsets[at : at + RANGES_MAX]
                self.gather(lease, verb, delay_ms, reason, part, _among(results, part), future)
            return
        key = (lease, verb, delay_ms, reason)
        gathering = self.gathered.get(key)
        if gathering is None:
            gathering = self.gathered[key] = Gathering(lease, verb, delay_ms, reason)
        count, size = len(offsets), len(reason)
        for _, value in results:
            size += len(value)
        send_at = min(self.send_at, self._connection.clock() + GATHER_S)
        gathering.add(offsets, future)
        # No calls from here on: Ctrl-C may come with the return of one, and would leave the counts behind.
        gathering.results += results
        self._count += count
        self.unconfirmed += count
        self._bytes += size
        self.send_at = send_at
        if self._count >= GATHER_MAX or self._bytes >= GATHER_BYTES:
            self.send()

    def take(self) -> list[Gathering]:
        """The gathered outcomes, for a request that is about to be sent."""
        taken = list(self.gathered.values())
        out = dict.fromkeys(taken)
        self.gathered, self._count, self._bytes, self.send_at = {}, 0, 0, FOREVER
        self._out.update(out)
        return taken

    def send(self) -> None:
        """Send what was gathered."""
        if self.gathered:
            try:
                self._ask(self.take())
            except BaseException:  # Ctrl-C: it may be on its way or not
                self.say_again()
                raise

    def _ask(self, gatherings: list[Gathering]) -> None:
        def answered(answer: Answer) -> None:
            if isinstance(answer, Settled):
                self.told(gatherings, answer.refused)
            else:
                assert isinstance(answer, Failure), f"settling was answered with {type(answer).__name__}"
                self.refused(gatherings, answer)

        topic, group = self._topic, self._group
        try:
            settles = settles_of(gatherings)
            self._connection.post(
                Question(self._connection, lambda request: SettleTasks(request, topic, group, settles), answered)
            )
        except Error as error:
            self.unsendable(gatherings, error)

    # -- answers --------------------------------------------------------------------------------------

    def told(self, gatherings: list[Gathering], refused: list[Refusal]) -> None:
        """Handle an answer: all are committed but the refused ones."""
        self._trouble, self._backoff_s = None, 0.0
        errors = {refusal.index: _error_of(refusal, gatherings) for refusal in refused} if refused else {}
        for index, gathering in enumerate(gatherings):
            self._end(gathering, errors.get(index))

    def refused(self, gatherings: list[Gathering], failure: Failure) -> None:
        """Handle a refused request: it is retried if that can help."""
        if not failure.retry:
            for gathering in gatherings:
                self._end(gathering, raised(failure))
            return
        self._trouble = failure
        self._again += gatherings
        self._backoff_s = min(max(2 * self._backoff_s, BACKOFF_MIN_S), BACKOFF_MAX_S)
        self.again_at = self._connection.clock() + max(self._backoff_s, failure.after_ms / 1000)

    def unsendable(self, gatherings: list[Gathering], error: Error) -> None:
        """Fail outcomes in a request that no broker would take."""
        for gathering in gatherings:
            self._end(gathering, error)

    def give_up(self, error: Error) -> None:
        """End all outcomes that are not acknowledged: they are not resent, and their futures raise `error`."""
        self.take()
        for gathering in list(self._out):
            self._end(gathering, error)

    def say_again(self) -> None:
        """Resend: a request or an answer may be lost with a connection or by an interrupt."""
        self._again = list(self._out)
        self.again_at = 0.0

    def _end(self, gathering: Gathering, error: Error | None) -> None:
        if gathering not in self._out:
            return  # it was said twice
        count = len(gathering.offsets)
        del self._out[gathering]
        self.unconfirmed -= count
        if error is not None:
            for future in gathering.futures:
                keep(self.failed, future)
            if error.code == LeaseLost.code:
                gathering.lease.lost = True
                gathering.lease.core.lose(gathering.lease)
        gathering.ended(error)

    def raise_unseen(self) -> None:
        """Raise the first error not raised yet."""
        raise_first(self.failed)

    # -- keeping going --------------------------------------------------------------------------------

    def turn(self, now: float) -> None:
        """Send outcomes that have waited long enough."""
        if now >= self.again_at:
            again, self._again, self.again_at = [each for each in self._again if each in self._out], [], FOREVER
            try:
                for at in range(0, len(again), GATHER_MAX):
                    self._ask(again[at : at + GATHER_MAX])
            except BaseException:  # Ctrl-C
                self.say_again()
                raise
        if now >= self.send_at:
            self.send()


def settles_of(gatherings: list[Gathering]) -> list[Settle]:
    """Messages for the wire, in order: refusals come by index."""
    return list(map(Gathering.settle, gatherings))


def _among(results: list[tuple[int, bytes]], offsets: Sequence[int]) -> list[tuple[int, bytes]]:
    wanted = set(offsets) if results else set()
    return [result for result in results if result[0] in wanted]


def _error_of(refusal: Refusal, gatherings: list[Gathering]) -> Error:
    """The broker's sentence, with the tasks it is about."""
    gathering = gatherings[refusal.index]
    lease, count = gathering.lease, len(gathering.offsets)
    named = f"{lease.core.topic.name}-{lease.partition}-{gathering.offsets[0]}"
    named += f" and {count - 1} more" if count > 1 else ""
    return error_from(refusal.code, f"task {named}: {refusal.message}")
