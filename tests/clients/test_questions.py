"""Questions that keep the batches of their answer let go of them at once, without the garbage collector."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from penstock.clients.batches.verbs import FetchManyQuestion
from penstock.clients.connection.question import Question
from penstock.clients.queues.claiming import _ClaimQuestion
from penstock.clients.queues.verbs import _DeadQuestion
from penstock.clients.verbs import FetchQuestion
from penstock.gateway.asking import Asked
from penstock.transport.messages import Done


class Answering:
    """A connection that has an answer with batches."""

    payload = b"batches"

    def __init__(self) -> None:
        self.ended: list[Question] = []

    def post(self, question: Question) -> None:
        """It is answered later."""

    def clock(self) -> float:
        return 1.0

    def arrived_at(self, asked: float) -> float:
        return asked


QUESTIONS: dict[str, Callable[[Any], Question]] = {
    "fetch many": lambda connection: FetchManyQuestion(connection, [], 0, 0, 0),
    "fetch": lambda connection: FetchQuestion(connection, b"t", 0, 0, 0),
    "claim": lambda connection: _ClaimQuestion(connection, cast("Any", None)),
    "dead": lambda connection: _DeadQuestion(connection, cast("Any", None), "g", 0, 0, 1, ""),
    "gateway": lambda connection: Asked(cast("Any", SimpleNamespace(connection=connection, nudged=True)), Done),
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_its_batches_go_with_it(kind):
    async def ask() -> None:
        connection = Answering()
        question = QUESTIONS[kind](connection)
        question.answered(Done(1))
        assert connection.ended.pop() is question
        kept = [value for value in vars(question).values() if value == b"batches"]
        assert kept or cast("Asked", question).arrived.result()[1] == b"batches"
        gone = weakref.ref(question)
        del question
        assert gone() is None

    gc.disable()
    try:
        asyncio.run(ask())
    finally:
        gc.enable()
