"""Asks the broker, with a future for each question.

Idea: a door asks much and rarely waits for several things at once, so a question is a future that its answer sets,
without steps. A question whose caller is gone tells what came too late.

Contract: everything on the loop that connected. Questions are asked again over a new connection, while they are wanted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ..clients.connection.question import Question, expect
from ..clients.connection.request_ids import current_ids
from ..clients.errors import TimedOut
from ..transport.messages import Answer

if TYPE_CHECKING:
    from ..clients.aio.driver import AsyncDriver
    from ..transport.message import Message

A = TypeVar("A")

Late = Callable[[Answer], None]


class Asked(Question):
    """One question, and the future of its answer and of the batches that came with it."""

    def __init__(self, driver: AsyncDriver, make: Callable[[int], Message], late: Late | None = None) -> None:
        """`late` gets an answer that comes when the future was cancelled."""
        super().__init__(driver.connection, make)
        self.ids = current_ids()
        self.arrived: asyncio.Future[tuple[Answer, bytes]] = asyncio.get_running_loop().create_future()
        self._late = late
        driver.connection.post(self)
        if not driver.nudged:
            driver.nudge()

    def answered(self, answer: Answer) -> None:  # no `then`: a cycle would keep the batches until garbage is collected
        super().answered(answer)
        if not self.arrived.done():
            self.arrived.set_result((answer, bytes(self._connection.payload)))
        elif self._late is not None:
            self._late(answer)

    def lost(self) -> None:
        """See Asker: what is not wanted any more is not asked again."""
        if not self.arrived.done():
            super().lost()


async def ask(
    driver: AsyncDriver, make: Callable[[int], Message], kind: type[A], what: str, *, wait_s: float = 0.0
) -> tuple[A, bytes]:
    """Ask, and return the answer and its batches. Raises the error of a Failure, TimedOut.

    `wait_s` is how long the broker may wait; `what` completes "timed out: ...".
    """
    question = Asked(driver, make)
    try:
        async with asyncio.timeout(driver.connection.timeout + wait_s):
            answer, payload = await question.arrived
    except TimeoutError:
        raise TimedOut(f"timed out: {what}: {driver.connection.state}") from None
    finally:
        question.cancel()
    return expect(answer, kind), payload
