"""The ends of any number of partitions: answered at once, or when one of them moves.

Idea: a question with no news for its asker waits under the names of its topics. Moving an end, or growing or deleting
a topic, answers the questions that wait there; turns do not look at them otherwise.

Contract: an answer has every partition of every topic asked, as committed, each at the time it was looked at: that is
done in steps. Memory: the ids of its topics per waiting question, up to a limit.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

from ....transport.messages import AskEnds, End, Known
from ....transport.messages import Ends as EndsMessage
from ...errors import InvalidRequest, LimitReached
from ..turns.parked import Parked
from ..turns.replies import refusing

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ..logs.partition import Partition
    from ..logs.topics import Topic, Topics
    from ..ports import Handlers, NodeConfig, Now, Payload, Peer, Port, Work
    from ..turns.alarms import Alarms
    from ..turns.portions import Portions

LOOKS = 16
"""Partitions, or topics, that are looked at in one step."""

TOPICS_MAX = 1 << 16
"""Topics that the waiting questions of one connection are about, counted for each."""


class EndsQuestion:
    """One that waits, or is about to."""

    __slots__ = ("deadline_s", "moved", "names", "number", "peer", "request", "stands", "told", "topics")

    def __init__(self, peer: Peer, request: int, topics: list[bytes], deadline_s: float, number: int) -> None:
        self.peer = peer
        self.request = request
        self.topics = topics
        self.names: list[str] = []  # under which it stands
        self.deadline_s = deadline_s
        self.number = number
        self.stands = False  # in the way of what moves
        self.moved = False  # something differs from what it was found to be
        self.told = False  # its answer is on its way


class EndsRequests:
    """Handler of AskEnds, and the questions that wait."""

    def __init__(
        self, topics: Topics, port: Port, config: NodeConfig, wakes: Portions, deadlines: Alarms[float]
    ) -> None:
        """`wakes` answers those that wait, in portions."""
        self.handlers: Handlers = {AskEnds: self.ask}
        self._topics = topics
        self._port = port
        self._config = config
        self._wakes = wakes
        self._numbers = count(1)
        self._parked = Parked[EndsQuestion]("questions about ends", deadlines, self._touch)
        self.by_topic: dict[str, dict[int, EndsQuestion]] = {}
        self._asked: Counter[Peer] = Counter()  # topics of waiting questions

    @property
    def waiting(self) -> int:
        """The number of waiting questions."""
        return len(self._parked.standing)

    def ask(self, peer: Peer, message: AskEnds, payload: Payload, now: Now) -> Work:
        """Answer, or wait. Raises InvalidTopic, InvalidRequest, LimitReached, Unavailable."""
        asked = [known.topic for known in message.topics]
        if len(set(asked)) < len(asked):
            raise InvalidRequest("a topic is asked about twice: name each once")
        wait_s = min(message.wait_ms / 1000, self._config.wait_max_s)
        question = EndsQuestion(peer, message.request, asked, now.monotonic_s + wait_s, next(self._numbers))
        try:
            if message.wait_ms:
                yield from self._stand(question)
            found = yield from self._found(asked)
            if not message.wait_ms or is_news(message.topics, found):
                self._port.reply(peer, EndsMessage(message.request, found))
            else:
                self._parked.check(peer)
                self._parked.add(question)
                self._look(question)
        finally:
            if question not in self._parked:
                self._leave(question)

    def end_moved(self, partition: Partition) -> None:
        """Answer questions about a topic that has new records."""
        self._moved(partition.topic)

    def topic_grown(self, topic: Topic) -> None:
        """A topic has more partitions."""
        self._moved(topic.name)

    def topic_deleted(self, topic: Topic) -> None:
        """A topic is about to go: by the time of the answers it is gone."""
        self._moved(topic.name)

    def disconnect(self, peer: Peer) -> None:
        """Drop what a peer waits for."""
        for question in self._parked.of(peer):
            self._parked.remove(question)
            self._leave(question)

    # -- answers --------------------------------------------------------------------------------------

    def _moved(self, name: str) -> None:
        for question in self.by_topic.get(name, {}).values():
            question.moved = True
            if question in self._parked:
                self._look(question)

    def _touch(self, question: EndsQuestion) -> None:
        """Answer a question whose time is up as if something had moved."""
        question.moved = True
        self._look(question)

    def _look(self, question: EndsQuestion) -> None:
        """Answer a question, once, when something moved."""
        if question.moved and not question.told:
            question.told = True
            refuse = refusing(self._port, question.peer, question.request)
            self._wakes.add(question.peer, self._answer(question), refuse)

    def _answer(self, question: EndsQuestion) -> Work:
        self._parked.remove(question)
        self._leave(question)
        found = yield from self._found(question.topics)
        self._port.reply(question.peer, EndsMessage(question.request, found))
        yield

    def _found(self, asked: Sequence[bytes]) -> Generator[int | None, None, list[list[End]]]:
        """The ends of topics; none of one that is not there.

        Raises InvalidTopic; Unavailable for a partition that is not open.
        """
        found: list[list[End]] = []
        looks = 0
        for id_ in asked:
            topic, ends = self._topics.find(id_), list[End]()
            while topic is not None and len(ends) < len(topic.partitions):
                partition = topic.partition(len(ends))
                ends.append(End(partition.first, partition.end, partition.end_term))
                looks += 1
                if looks % LOOKS == 0:
                    yield
                    topic = self._topics.find(id_)
            found.append(ends if topic is not None else [])
            looks += 1
            if looks % LOOKS == 0:
                yield
        return found

    # -- waiting --------------------------------------------------------------------------------------

    def _stand(self, question: EndsQuestion) -> Work:
        """Under the names of its topics, so that what moves from now on is noticed."""
        peer = question.peer
        if self._asked[peer] + len(question.topics) > TOPICS_MAX:
            raise LimitReached(
                f"questions of this connection wait for news of {self._asked[peer]} topics, and {TOPICS_MAX} is the "
                "limit: wait for answers first, or ask about fewer topics"
            )
        self._asked[peer] += len(question.topics)
        question.stands = True
        for looks, id_ in enumerate(question.topics, 1):
            topic = self._topics.by_id.get(id_)
            if topic is not None:
                question.names.append(topic.name)
                self.by_topic.setdefault(topic.name, {})[question.number] = question
            if looks % LOOKS == 0:
                yield

    def _leave(self, question: EndsQuestion) -> None:
        if not question.stands:
            return
        question.stands = False
        self._asked[question.peer] -= len(question.topics)
        if not self._asked[question.peer]:
            del self._asked[question.peer]
        for name in question.names:
            waiting = self.by_topic[name]
            del waiting[question.number]
            if not waiting:
                del self.by_topic[name]


def is_news(known: Sequence[Known], found: Sequence[Sequence[End]]) -> bool:
    """Whether anything differs from what the asker knows of one of its topics."""
    return any(
        not topic.ends or topic.ends != [end.end for end in ends] for topic, ends in zip(known, found, strict=True)
    )
