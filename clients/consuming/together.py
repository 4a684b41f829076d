"""Several topics behind one consumer: a ConsumerCore for each, which take turns.

Idea: a session of the broker, its group and its cursors are of one topic, so a consumer of several is as many members,
over one connection. What is here asks them in turn, beginning behind the one that gave something last, and waits once
for all of them: whatever comes, comes over the connection. Where topics are chosen by a pattern, it also asks every
TOPICS_PERIOD_S which there are.

Contract: a call gives what any of the topics has, and a topic that always has something keeps no other one back. What
one core raises while records of others are in hand is raised by the next call. A topic that a pattern chose ends
silently when it is deleted; one that was named raises UnknownTopic. Must not know how to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import structs

from ...broker.errors import Fenced, UnknownTopic
from ...storage.errors import Closed, Error
from ...storage.record import Record
from ...transport.consumer_session import ConsumerSession
from ...transport.messages import EARLIEST, Answer, ListTopics, Topic, Topics
from ..arguments.checking import count
from ..connection.pages import all_topics
from ..connection.question import Question
from ..connection.steps import FOREVER, Pause, Steps
from ..descriptions import Committed
from ..errors import InvalidArgument, NotAssigned
from .chosen import Chosen
from .columnar import Convert
from .core import ConsumerCore
from .handout import Handout, Load
from .lags import lags
from .leaving import LEAVE_PATIENCE_S, leave
from .moving import pause, resume, seek
from .session_life import ConsumerOptions
from .telling import AssignmentNews, OnAssignment, Untold

if TYPE_CHECKING:
    from ..connection.connection import Connection

T = TypeVar("T")

Cursors = Callable[[str, str], Steps[list[tuple[int, int, str]]]]
"""Asks for the cursors of a group in a topic: partition, offset and note."""

TOPICS_PERIOD_S = 5.0
"""How often is asked for topics that a pattern chooses and that are new."""


def opened_core(
    connection: Connection,
    options: ConsumerOptions,
    load: Load | None,
    on_assignment: OnAssignment | None,
    topic: Topic,
    *,
    is_new: bool = False,
) -> ConsumerCore:
    """The core of a topic; one that `is_new` is read from its first record, whatever `start` is."""
    core = ConsumerCore(connection, topic, structs.replace(options, start=EARLIEST) if is_new else options)
    core.load = load
    core.telling = None if on_assignment is None else AssignmentNews(topic.name, on_assignment)
    return core


class ConsumerCores:
    """See the module. `open`: makes the core of a topic (`opened_core`)."""

    def __init__(self, connection: Connection, chosen: Chosen, open: Callable[..., ConsumerCore]) -> None:
        self.connection = connection
        self.chosen = chosen
        self.closed = False
        self.cores: dict[str, ConsumerCore] = {}
        self._open = open
        self._asking: Question | None = None
        self._look_at = FOREVER
        self._untold: ConsumerCore | None = None  # whose change the application is to be told of

    @property
    def ended(self) -> bool:
        """Closing is done."""
        return self.closed and all(core.ended for core in self.cores.values())

    # -- topics -------------------------------------------------------------------------------------------

    def joined(self, deadline: float) -> Steps[None]:
        """Find the topics and join them. Raises UnknownTopic for those that are missing."""
        self._add((yield from all_topics(self.connection, deadline, f"looking up {self.chosen}")), are_new=False)
        if self.chosen.has_patterns:
            self._look_at = self.connection.clock() + TOPICS_PERIOD_S
            self.connection.parts[self] = None
        yield from self._each(list(self.cores.values()), lambda core: core.joined(deadline), may_be_gone=True)

    def _add(self, topics: list[Topic], *, are_new: bool) -> None:
        present = {topic.name: topic for topic in topics}
        for name in self.chosen.among(present):
            known = self.cores.get(name)
            if known is None or known.closed:
                self.cores[name] = self._open(present[name], is_new=are_new)

    def _ask(self, before: list[Topic], after: str = "") -> None:
        """Ask for a page of all topics, behind those of the pages before."""

        def listed(answer: Answer) -> None:
            self._asking = None
            if not isinstance(answer, Topics) or self.closed:
                return
            before.extend(answer.topics)
            if answer.next:
                self._ask(before, answer.next)
                return
            with suppress(UnknownTopic):  # of one that was named: its core says so
                self._add(before, are_new=True)

        self._asking = Question(self.connection, lambda request: ListTopics(request, [], after), listed)
        self.connection.post(self._asking)

    def turn(self, now: float) -> None:
        """See Part."""
        if now >= self._look_at:
            self._look_at = now + TOPICS_PERIOD_S
            if self.connection.awaits(self._asking):
                return
            self._ask([])

    def due(self) -> float:
        """See Part."""
        return self._look_at

    def restored(self) -> None:
        """See Part."""

    # -- as a ConsumerCore: its shell tells the application of one core at a time ---------------------------------

    @property
    def telling(self) -> AssignmentNews | None:
        """Of the core that has something to tell."""
        return None if self._untold is None else self._untold.telling

    @property
    def session(self) -> ConsumerSession | None:
        """Of the same core."""
        return None if self._untold is None else self._untold.session

    @property
    def load(self) -> Load | None:
        """The same for all."""
        return next((core.load for core in self.cores.values()), None)

    def run_there(self, *, holds: bool = False) -> Handout | None:
        """As ConsumerCore: a run of one of the topics."""
        return self._one_of(lambda core: core.run_there(holds=holds))

    @property
    def begun(self) -> dict[str, dict[int, int]]:
        """Where the present call began to hand out, by topic and partition."""
        return {name: core.begun for name, core in self._now() if core.begun}

    @begun.setter
    def begun(self, begun: dict[str, dict[int, int]]) -> None:
        for name, core in self._now():
            core.begun = begun.get(name, {})

    @property
    def back_to(self) -> dict[str, dict[int, int]]:
        """The same of a call that was interrupted before its records were given."""
        return {name: core.back_to for name, core in self._now() if core.back_to}

    @back_to.setter
    def back_to(self, begun: dict[str, dict[int, int]]) -> None:
        for name, core in self._now():
            core.back_to = begun.get(name, core.back_to)

    def _now(self) -> list[tuple[str, ConsumerCore]]:
        """The cores of this moment, for a shell without the lock: a turn may add and remove some meanwhile."""
        return list(self.cores.items())

    # -- handing out --------------------------------------------------------------------------------------

    def fetch(self, max_records: int, deadline: float) -> Steps[list[Record[Any]]]:
        """As ConsumerCore."""
        count("max_records", max_records)
        self._enter(one_by_one=False)
        if not max_records:
            return []
        return (yield from self._first_of(lambda: self._records_there(max_records) or None, deadline)) or []

    def next_list(self, deadline: float, *, one_by_one: bool) -> Steps[Handout | None]:
        """As ConsumerCore: a run of one of the topics."""
        self._enter(one_by_one)
        return (yield from self._first_of(self.run_there, deadline))

    def next_batch(self, convert: Convert, deadline: float) -> Steps[Any]:
        """As ConsumerCore: of one of the topics."""
        return (yield from self._first_of(lambda: self.batch_there(convert), deadline))

    def batch_there(self, convert: Convert) -> Any:
        """As ConsumerCore."""
        self._enter(one_by_one=False)
        return self._one_of(lambda core: core.batch_there(convert))

    def _first_of(self, there: Callable[[], Any], deadline: float) -> Steps[Any]:
        """Wait until any topic has something; None when none has by the deadline."""
        while True:
            found = there()
            if found is not None:
                return found
            for core in self._present():
                core.pause(deadline)
            yield Pause(deadline)
            for core in self._present():
                self._check_told(core)
            if self.connection.clock() >= deadline:
                return there()

    def _one_of(self, ask: Callable[[ConsumerCore], Any]) -> Any:
        """What the first of the topics in turn has."""
        for core in self._present():
            found = ask(core)
            if found is not None:
                self._was_served(core)
                return found
        return None

    def _records_there(self, most: int) -> list[Record[Any]]:
        taken: list[Record[Any]] = []
        last: ConsumerCore | None = None
        for core in self._present():
            some = core.records_there(most - len(taken), holds=bool(taken))
            if some:
                taken, last = taken + some if taken else some, core
            if len(taken) >= most:
                break
        if last is not None:
            self._was_served(last)
        return taken

    def _was_served(self, core: ConsumerCore) -> None:
        """Let the topics behind this one come first in the next call."""
        names = list(self.cores)
        at = names.index(core.topic.name) + 1
        self.cores = {name: self.cores[name] for name in names[at:] + names[:at]}

    def _enter(self, one_by_one: bool) -> None:
        """Note a call of the application, for all topics."""
        self.check_open()
        for core in self._present():
            self._untold = core
            core.enter(one_by_one)  # may raise Untold, of this core
        self._untold = None

    def _check_told(self, core: ConsumerCore) -> None:
        if core.telling is not None:
            self._untold = core
            core.telling.check(core.session)
            self._untold = None

    def _present(self) -> Iterator[ConsumerCore]:
        """The cores, without those whose topics were deleted and are only of a pattern."""
        for name, core in list(self.cores.items()):
            if not isinstance(core.life.failure, UnknownTopic) or name in self.chosen.named:
                yield core
            elif core.telling is not None and core.telling.known:
                self._untold = core
                raise Untold
            else:
                core.closed = core.ended = True
                self.connection.parts.pop(core, None)
                del self.cores[name]

    # -- the verbs of ConsumerCore, by topic ----------------------------------------------------------------

    def commit(self, positions: Mapping[str, Mapping[int, int]] | None, note: str, deadline: float) -> Steps[None]:
        """Commit each topic, also behind one that raises."""
        cores = self.some(None) if positions is None else [self.of(name) for name in positions]
        given = positions or {}
        yield from self._each(
            cores, lambda core: core.commit(given.get(core.topic.name), note, deadline), may_be_gone=positions is None
        )

    def seek(self, place: int, is_time: bool, topic: str | None, partition: int | None, deadline: float) -> Steps[None]:
        """Continue elsewhere, in one topic or in all."""
        if not is_time and topic is None and len(self.cores) > 1:
            raise InvalidArgument(f"an offset is of one topic: say which of {sorted(self.cores)} with topic=")
        yield from self._of_some(topic, lambda core: seek(core, place, is_time, partition, deadline))

    def pause(self, topic: str | None, partition: int | None, deadline: float) -> Steps[None]:
        """Hand out nothing of a topic, or of all."""
        yield from self._of_some(topic, lambda core: pause(core, partition, deadline))

    def resume(self, topic: str | None, partition: int | None, deadline: float) -> Steps[None]:
        """Hand out its records again."""
        yield from self._of_some(topic, lambda core: resume(core, partition, deadline))

    def lags(self, deadline: float) -> Steps[dict[str, dict[int, int]]]:
        """The records still to be handed out, by topic and partition."""
        return (yield from self._of_some(None, lambda core: lags(core, deadline)))

    def committed(self, ask: Cursors) -> Steps[dict[str, dict[int, Committed]]]:
        """The group's cursors of partitions that are read here, by topic. Raises NoGroup. `ask`: those of one topic."""

        def of_one(core: ConsumerCore) -> Steps[dict[int, Committed]]:
            core.check_group()
            found = yield from ask(core.topic.name, core.options.group)
            mine = core.positions()
            return {partition: Committed(offset, note) for partition, offset, note in found if partition in mine}

        return (yield from self._of_some(None, of_one))

    def _of_some(self, topic: str | None, work: Callable[[ConsumerCore], Steps[T]]) -> Steps[dict[str, T]]:
        return (yield from self._each(self.some(topic), work, may_be_gone=topic is None))

    def _each(
        self, cores: list[ConsumerCore], work: Callable[[ConsumerCore], Steps[T]], *, may_be_gone: bool
    ) -> Steps[dict[str, T]]:
        """Do something with each topic, also behind one that is fenced or was deleted; the first error is raised then.

        `may_be_gone`: those that only a pattern chose are passed over where they were deleted.
        """
        found: dict[str, T] = {}
        first: Error | None = None
        for core in cores:
            name = core.topic.name
            try:
                found[name] = yield from work(core)
            except (Fenced, UnknownTopic) as error:
                is_passed = may_be_gone and isinstance(error, UnknownTopic) and name not in self.chosen.named
                first = first or (None if is_passed else error)
        if first is not None:
            raise first
        return found

    def some(self, topic: str | None) -> list[ConsumerCore]:
        """The core of a topic, or all, by name. Raises NotAssigned."""
        self.check_open()
        return [self.cores[name] for name in sorted(self.cores)] if topic is None else [self.of(topic)]

    def of(self, topic: str) -> ConsumerCore:
        """The core of a topic. Raises NotAssigned."""
        found = self.cores.get(topic)
        if found is None:
            raise NotAssigned(f"topic {topic} is none of those that this consumer reads: {sorted(self.cores)}")
        return found

    # -- the end ------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise Closed after `close`."""
        self.connection.check_ours()
        if self.closed:
            raise Closed(f"the consumer of {self.chosen} was closed; open another one")

    def close(self, deadline: float, *, failed: bool) -> Steps[None]:
        """As ConsumerCore, of each."""
        self.closed = True
        self.connection.parts.pop(self, None)
        if self._asking is not None:
            self._asking.cancel()
        limit = min(deadline, self.connection.deadline(LEAVE_PATIENCE_S))  # of all topics together
        for core in list(self.cores.values()):
            yield from leave(core, limit, failed=failed)
