"""The core of sync and async stagings and transactions: their producers, and how they end.

Idea: a transaction is the stages of its producers, a name and an epoch. Committing fixes its stages: nothing more can
be sent, and committing again repeats the same request.

Contract: nothing here waits; verbs that do are steps. An ended transaction never begins again. A commit with an
unknown outcome leaves everything as it is, so that it can be repeated.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ...broker.errors import StageLost, UnknownPartition, UnknownTopic
from ...storage.errors import Closed, Error
from ...transport.messages import Stage, Topic
from ..connection.shell import Shell
from ..connection.steps import Steps
from ..errors import InvalidArgument, TimedOut
from ..producing.pending import Future
from .staging_producer import StagingProducer
from .verbs import TransactionVerbs, checked_epoch, checked_name

DROP_PATIENCE_S = 5.0
"""Timeout of dropping stages, which the broker also drops by itself later."""

HOPELESS = (StageLost, UnknownTopic, UnknownPartition)
"""After these a commit of the same stages can never succeed."""

OWN = "~"
"""How names begin that are made up for one transaction; the broker remembers them for a short time only."""


class StagingCore:
    """The producers of one staging. `ended` says how it ended, "" before."""

    def __init__(self, shell: Shell, *, now_us: Callable[[], int], future: type[Future]) -> None:
        self.connection = shell.connection
        self.ended = ""
        self._shell = shell
        self._verbs = TransactionVerbs(shell.connection)
        self._now_us = now_us
        self._future = future
        self._producers: list[StagingProducer] = []

    def new_producer(self, topic: Topic, *, codec: str | None, window_bytes: int) -> StagingProducer:
        """Add a producer that stages. Raises Closed."""
        self.check_open()
        producer = StagingProducer(
            self._shell,
            topic,
            name="",
            window_bytes=window_bytes,
            codec=codec,
            now_us=self._now_us,
            future=self._future,
        )
        self._producers.append(producer)
        return producer

    def check_open(self) -> None:
        """Raise Closed once it has ended, and in a forked child."""
        self.connection.check_ours()
        if self.ended:
            raise Closed(f"this {self} was {self.ended}: begin another one")

    def stages(self, deadline: float) -> Steps[list[Stage]]:
        """Wait until all records sent are staged. Raises the first error not raised yet, and StageLost."""
        if self.ended != "closed":
            self.check_open()
        yield from self._flush(deadline)
        for producer in self._producers:
            producer.check_whole()
        return self._staged()

    def close(self, deadline: float) -> Steps[None]:
        """End once all records sent are staged. The stages stay, to be committed."""
        if self.ended:
            return
        try:
            yield from self._flush(deadline)
        finally:
            self._end("closed")

    def drop(self, deadline: float) -> Steps[None]:
        """End, and have the broker drop the stages. If it did not answer, call it again."""
        if self.ended and self.ended != "closed":
            return
        self._end("closed")
        yield from self._verbs.drop(self._staged(), deadline)
        self.ended = "dropped"

    def give_up(self) -> Steps[None]:
        """Drop the stages if the broker is there; if not, it drops them itself after a time."""
        with suppress(Error):
            yield from self.drop(self.connection.deadline(min(DROP_PATIENCE_S, self.connection.timeout)))

    def _flush(self, deadline: float) -> Steps[None]:
        for producer in self._producers:
            yield from producer.flush(deadline)

    def _staged(self) -> list[Stage]:
        return [stage for producer in self._producers for stage in producer.stages()]

    def _end(self, how: str) -> None:
        self.ended = how
        for producer in self._producers:
            producer.abandon()

    def __str__(self) -> str:
        return "staging"


class TransactionCore(StagingCore):
    """A staging with a name and an epoch. `own_name`: the name was made up, so no other process commits it."""

    def __init__(self, shell: Shell, name: str, epoch: int, *, own_name: bool, **how: Any) -> None:
        super().__init__(shell, **how)
        self.name = name
        self.epoch = epoch
        self.fixed: list[Stage] | None = None  # what is committed, once that was begun
        self._own_name = own_name
        self._published = False

    def commit(self, deadline: float) -> Steps[bool]:
        """Publish everything, all or none. Returns False when others committed this epoch or a later one."""
        if self.ended == "committed":
            return self._published
        self.check_open()
        if self.fixed is None:
            self.fixed = yield from self._fix(deadline)
        try:
            done = yield from self._verbs.commit(self.name, self.epoch, self.fixed, deadline)
        except HOPELESS:
            yield from super().give_up()
            raise
        if not done:
            yield from super().give_up()
        self._end("committed")
        self._published = done or self._own_name
        return self._published

    def give_up(self) -> Steps[None]:
        """See StagingCore. Once a commit was begun it may be decided, and can be repeated."""
        if self.fixed is None:
            yield from super().give_up()

    def _fix(self, deadline: float) -> Steps[list[Stage]]:
        """The stages of everything sent; nothing more is sent. A record that cannot be staged ends the transaction."""
        for producer in self._producers:
            producer.closed = True
        try:
            return (yield from self.stages(deadline))
        except TimedOut:
            raise
        except Error:
            yield from super().give_up()
            raise

    def __str__(self) -> str:
        return f"transaction ({self.name}, epoch {self.epoch})"


def begin(
    shell: Shell, id: str | None, epoch: int | None, *, now_us: Callable[[], int], future: type[Future]
) -> TransactionCore:
    """A transaction under a name and an epoch, or under a made-up name. Raises InvalidArgument."""
    if id is None and epoch is None:
        name = f"{OWN}{os.urandom(12).hex()}"
        return TransactionCore(shell, name, 1, own_name=True, now_us=now_us, future=future)
    if id is None or epoch is None:
        raise InvalidArgument(f"id={id!r} and epoch={epoch!r} go together: give both, or neither to commit only once")
    return TransactionCore(shell, checked_name(id), checked_epoch(epoch), own_name=False, now_us=now_us, future=future)
