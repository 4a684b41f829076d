"""Where partitions end: asked about any number of them at once, answered at once or when one of them moves.

Idea: a question that says nothing new to its asker waits under the names of its topics. What moves an end, grows a
topic or deletes it answers those who wait there; nobody looks at them meanwhile.

Contract: an answer has every partition of every topic asked, as committed. Memory: one small entry per question that
waits, whatever it knows.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from ...storage.errors import Error
from ...transport.messages import AskEnds, End, Known
from ...transport.messages import Ends as EndsMessage
from .replies import failure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .partition import Partition
    from .ports import Handlers, NodeConfig, Now, Payload, Peer, Port
    from .topics import Topic, Topics

SLACK = 64
"""Deadlines of questions that were answered are cleared away once they are more than the others and this."""


class Question:
    """One that waits."""

    __slots__ = ("deadline_s", "names", "number", "peer", "request", "topics")

    def __init__(
        self, peer: Peer, request: int, topics: list[bytes], names: set[str], deadline_s: float, number: int
    ) -> None:
        self.peer = peer
        self.request = request
        self.topics = topics
        self.names = names
        self.deadline_s = deadline_s
        self.number = number


class Ends:
    """Handler of AskEnds, and the questions that wait."""

    def __init__(self, topics: Topics, port: Port, config: NodeConfig) -> None:
        self.handlers: Handlers = {AskEnds: self.ask}
        self._topics = topics
        self._port = port
        self._config = config
        self._numbers = count(1)
        self._standing: dict[int, Question] = {}
        self._by_topic: dict[str, dict[int, Question]] = {}
        self._due: list[tuple[float, int]] = []

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._standing)

    def ask(self, peer: Peer, message: AskEnds, payload: Payload, now: Now) -> None:
        """Answer, or wait. Raises InvalidTopic, Unavailable."""
        asked = [known.topic for known in message.topics]
        found = self._found(asked)
        if not message.wait_ms or is_news(message.topics, found):
            self._port.reply(peer, EndsMessage(message.request, found))
            return
        wait_s = min(message.wait_ms / 1000, self._config.wait_max_s)
        names = {self._topics.by_id[id_].name for id_ in asked}
        self._stand(Question(peer, message.request, asked, names, now.monotonic_s + wait_s, next(self._numbers)))

    def end_moved(self, partition: Partition) -> None:
        """There are new records: answer who asked about their topic."""
        waiting = self._by_topic.get(partition.topic)
        if waiting is not None:
            for question in list(waiting.values()):
                self._answer(question)

    def topic_grown(self, topic: Topic) -> None:
        """A topic has more partitions."""
        for question in list(self._by_topic.get(topic.name, {}).values()):
            self._answer(question)

    def topic_deleted(self, topic: Topic) -> None:
        """A topic is about to go: answer as if it were gone."""
        for question in list(self._by_topic.get(topic.name, {}).values()):
            self._answer(question, gone=topic.id)

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        for question in [each for each in self._standing.values() if each.peer == peer]:
            self._forget(question)

    def tick(self, now: Now) -> float | None:
        """Answer those whose time is up. Returns the next deadline."""
        due = self._due
        while due and (due[0][0] <= now.monotonic_s or due[0][1] not in self._standing):
            question = self._standing.get(heappop(due)[1])
            if question is not None:
                self._answer(question)
        return due[0][0] if due else None

    # -- answers --------------------------------------------------------------------------------------

    def _answer(self, question: Question, gone: bytes = b"") -> None:
        self._forget(question)
        try:
            answer = EndsMessage(question.request, self._found(question.topics, gone))
        except Error as error:
            answer = failure(question.request, error)
        self._port.reply(question.peer, answer)

    def _found(self, asked: Sequence[bytes], gone: bytes = b"") -> list[list[End]]:
        """The ends of topics; none of one that is not there.

        Raises InvalidTopic; Unavailable for a partition that is not open.
        """
        topics = [None if id_ == gone else self._topics.find(id_) for id_ in asked]
        return [[] if topic is None else _ends(topic) for topic in topics]

    # -- who waits ------------------------------------------------------------------------------------

    def _stand(self, question: Question) -> None:
        self._standing[question.number] = question
        for name in question.names:
            self._by_topic.setdefault(name, {})[question.number] = question
        heappush(self._due, (question.deadline_s, question.number))
        if len(self._due) > 2 * len(self._standing) + SLACK:
            self._due = [(each.deadline_s, each.number) for each in self._standing.values()]
            heapify(self._due)

    def _forget(self, question: Question) -> None:
        del self._standing[question.number]
        for name in question.names:
            waiting = self._by_topic[name]
            del waiting[question.number]
            if not waiting:
                del self._by_topic[name]


def _ends(topic: Topic) -> list[End]:
    partitions = [topic.partition(number) for number in range(len(topic.partitions))]
    return [End(partition.first, partition.end, partition.end_term) for partition in partitions]


def is_news(known: Sequence[Known], found: Sequence[Sequence[End]]) -> bool:
    """Whether anything differs from what the asker knows of one of its topics."""
    return any(
        not topic.ends or topic.ends != [end.end for end in ends] for topic, ends in zip(known, found, strict=True)
    )
