"""A broker in memory that lends its logs to producers in the same process, and appenders that do as a test says.

Idea: what an appender writes goes into the broker under the producer's sequence, as what a lent log is followed by. So
a batch that is sent again is known there as a repeat, or not, as it is with files.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from penstock.clients.connection.question import Question
from penstock.clients.embedded.local import LocalChannel
from penstock.clients.producing import direct
from penstock.storage.plan import Appended
from penstock.transport.messages import Failure, GiveBack, Lend, Lent, Moved, Produce, Produced


class Lending:
    """`script`: what comes of the next appends; "stands" when it is over. `refusals`: of the next questions."""

    def __init__(self, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """`other`: a client of the same broker that only this uses."""
        self.script: deque[str] = deque()
        self.refusals: deque[str] = deque()
        self.said: list[type] = []  # Lend, GiveBack and Moved, as they came
        self.through_broker = 0
        self.appenders: list[ScriptedAppender] = []
        self.asleep = 0
        self.max_record_bytes = 1 << 30
        self.holding = False  # questions are not answered
        self._other = other
        self._send = LocalChannel.send
        monkeypatch.setattr(direct, "never", lambda url, *, may_append: "")
        monkeypatch.setattr(direct, "attach", self._attach)
        rig = self
        monkeypatch.setattr(LocalChannel, "send", lambda channel, *message: rig._sent(channel, *message))

    def _sent(self, channel: LocalChannel, message: Any, payload: Any = b"") -> bool:
        kind = type(message)
        if kind in (Lend, GiveBack, Moved):
            self.said.append(kind)
            if kind is Lend and not self.holding:
                self.answer(channel, message)
            return True
        if kind is Produce and channel is not self._other._connection.channel:
            self.through_broker += 1
            self.end()
        return self._send(channel, message, payload)

    def answer(self, channel: LocalChannel, message: Lend) -> None:
        """Answer a question for a log."""
        self.end()
        if self.refusals:
            channel.put(Failure(message.request, "not_lent", self.refusals.popleft(), True), b"")
            return
        self.asked = message
        channel.put(
            Lent(message.request, len(self.appenders) + 1, 1, 0, bytes(16), "/log", 1, 1, 0, 0, 0, 0, 0, 0, 1, 1,
                 self.max_record_bytes, 0, 0.0, [(0, 0)] * 3), b"",
        )  # fmt: skip

    def _attach(self, grant: Any, **_: Any) -> ScriptedAppender:
        if self.script and self.script[0] == "not attached":
            self.script.popleft()
            raise OSError("no such file")
        self.appenders.append(ScriptedAppender(self, grant, self.asked))
        return self.appenders[-1]

    def end(self) -> None:
        """The log is taken back."""
        for appender in self.appenders:
            appender.taken_back = True

    def put(self, asked: Lend, batch: bytes) -> Produced:
        """The batch stands."""
        client = self._other
        question = Question(
            client._connection, lambda request: Produce(request, asked.topic, asked.partition), payload=batch
        )
        client._connection.post(question)
        while question.answer is None:
            client._connection.turn()
        assert isinstance(question.answer, Produced), question.answer
        return question.answer


class ScriptedAppender:
    """As DirectAppender."""

    def __init__(self, rig: Lending, grant: Any, asked: Lend) -> None:
        self.ended = self.in_doubt = self.paused = self.taken_back = self.closed = False
        self.trouble: Exception | None = None
        self.why = "no room"
        self.grant = grant
        self.last = SimpleNamespace(term=0, time_us=0)
        self.count = 0
        self._rig = rig
        self._asked = asked

    @property
    def asleep(self) -> int:
        return self._rig.asleep

    @property
    def has_grant(self) -> bool:
        return not self.ended and not self.taken_back

    def append(self, batch: Any) -> Appended | None:
        self.in_doubt = self.paused = False
        if self.ended or self.taken_back:
            self.ended = True
            return None
        what = self._rig.script.popleft() if self._rig.script else "stands"
        if what == "paused":
            self.paused = True
            return None
        if what == "no room":
            return None
        if what in ("stands", "in doubt, stands", "interrupted, stands"):
            produced = self._rig.put(self._asked, bytes(batch))
            if what == "stands":
                self.count += 1
                self.last = SimpleNamespace(term=produced.term, time_us=produced.time_us)
                return Appended(0, produced.offset, 0)
        if what == "trouble":
            self.trouble = OSError("disk")
        self.in_doubt = self.ended = True
        if what.startswith("interrupted"):
            raise KeyboardInterrupt
        return None

    def end(self) -> None:
        self.ended = self.closed = True
