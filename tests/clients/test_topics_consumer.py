"""A consumer of several topics: they take turns, wait once, and verbs say which topic."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
from penstock.broker.engine.logs import topic_page
from penstock.broker.errors import Fenced, UnknownTopic
from penstock.clients import AssignmentChange, Committed, InvalidArgument, NoGroup, NotAssigned, connect
from penstock.clients.consuming import together
from penstock.clients.consuming.chosen import Chosen
from penstock.clients.consuming.core import ConsumerCore
from penstock.clients.consuming.feed import Feed
from penstock.clients.consuming.together import ConsumerCores
from penstock.clients.errors import CannotDeserialize
from penstock.storage.errors import Closed, Corrupt
from support.reading import fetched, until


@pytest.fixture
def soon(monkeypatch):
    """New topics are asked for all the time; in memory they come one by one."""
    monkeypatch.setattr(together, "TOPICS_PERIOD_S", 0.01)
    monkeypatch.setattr(topic_page, "PAGE", 1)


@pytest.fixture
def three(client, topic):
    """Three topics, with 20, 2 and no records in their two partitions."""
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name, count in zip(names, (20, 2, 0), strict=True):
        client.create_topic(name, partitions=2)
        with client.producer(name) as producer:
            for partition in range(2):
                producer.send_many([b"%d" % number for number in range(count // 2)], partition=partition)
    return names


def places(records):
    return sorted((record.topic, record.partition, record.offset) for record in records)


def all_of(names):
    a, b, _ = names
    return sorted([(a, p, n) for p in range(2) for n in range(10)] + [(b, p, 0) for p in range(2)])


def test_one_fetch_brings_records_of_all_topics(client, three):
    with client.consumer(three) as consumer:
        assert consumer.topics == three
        assert consumer.group is None
        assert places(fetched(consumer, 22)) == all_of(three)
        assert consumer.fetch(wait=0) == []
        assert consumer.position == {three[0]: {0: 10, 1: 10}, three[1]: {0: 1, 1: 1}, three[2]: {0: 0, 1: 0}}
        with client.producer(three[2]) as producer:
            producer.send(b"late", partition=1)
            assert places(consumer.fetch(wait=60)) == [(three[2], 1, 0)]
        assert consumer.fetch(0) == []


def test_iterating_and_batches_bring_them_too(client, three):
    with client.consumer(tuple(three)) as consumer:
        assert places(itertools.islice(consumer, 22)) == all_of(three)
        consumer.seek("earliest")
        found = [record for batch in until(22, consumer.batches()) for record in batch]
        assert places(found) == all_of(three)
        consumer.seek("earliest")
        rows = [row for batch in until(22, consumer.batches("arrow", columns=["topic", "partition", "offset"]))
                for row in batch.to_pylist()]  # fmt: skip
        assert sorted((row["topic"], row["partition"], row["offset"]) for row in rows) == all_of(three)
        assert list(consumer.batches(wait=0.01)) == []


@pytest.mark.parametrize("how", ["damage", "failure"])
def test_what_one_topic_raises_waits_for_records_in_hand(client, three, how):
    a, b, _ = three
    with client.consumer([a, b]) as consumer:
        core = consumer._core.cores[b]
        fetched(consumer, 22)
        consumer.seek("earliest", topic=a)
        while not consumer._core.cores[a].session.partitions[0].fetched:
            assert consumer.lag() >= 0
        if how == "failure":
            core.life.failure = UnknownTopic("it is gone")
        else:
            core._feed = DamagedFeed()
        consumer._core.cores = {a: consumer._core.cores[a], b: core}
        found, told = [], 0
        while len(found) < 20:
            try:
                found += consumer.fetch(wait=60)
            except (UnknownTopic, Corrupt):
                told += 1
                core.life.failure = None
        if not told:
            with pytest.raises((UnknownTopic, Corrupt), match="it is"):
                consumer.fetch()
        core.life.failure = None
    assert places(found) == [place for place in all_of(three) if place[0] == a]


class DamagedFeed(Feed):
    """It raises until the application was told, and has nothing afterwards."""

    def __init__(self) -> None:
        self.told = False

    def next(self, decode, look):
        if not self.told:
            raise Corrupt("it is damaged")

    def pass_over(self, error):
        self.told = True

    def clear(self):
        """It is empty."""


def test_a_partition_is_released_while_its_consumer_waits(topic):
    with connect(f"mem://{topic}") as client, ThreadPoolExecutor(1) as thread:
        for name in "ab":
            client.create_topic(name, partitions=2)
        with client.consumer(["a", "b"], group="g") as one:
            waiting = thread.submit(one.fetch, 1, 60)
            with client.consumer(["a", "b"], group="g") as two:
                while {name: len(partitions) for name, partitions in two.assignment.items()} != {"a": 1, "b": 1}:
                    two.fetch(wait=0.01)
                for partition in range(2):
                    client.producer("a").send(b"v", partition=partition)
                assert len(waiting.result()) == 1


def test_a_topic_that_always_has_something_keeps_no_other_back(client, three):
    with client.consumer(three) as consumer:
        consumer.seek("earliest")
        first, second = ([record.topic for record in fetched(consumer, 2)] for _ in range(2))
        assert {*first, *second} == {three[0], three[1]}


def test_waiting_for_several_is_one_wait(client, three, monkeypatch):
    looks = []
    look = ConsumerCores._records_there
    monkeypatch.setattr(ConsumerCores, "_records_there", lambda core, most: looks.append(most) or look(core, most))
    with client.consumer(three) as consumer:
        fetched(consumer, 22)
        looks.clear()
        assert consumer.fetch(wait=0.5) == []
    assert len(looks) < 20


def test_commits_are_of_each_topic(client, three):
    a, b, c = three
    with client.consumer(three, group="g", member="m") as consumer:
        assert (consumer.group, consumer.member) == ("g", "m")
        fetched(consumer, 22)
        consumer.commit(note="all")
        assert consumer.committed() == {
            a: {p: Committed(10, "all") for p in range(2)}, b: {p: Committed(1, "all") for p in range(2)}, c: {}
        }  # fmt: skip
        consumer.commit({a: {1: 4}})
        assert client.committed(a, "g")[1].offset == 4
        assert client.committed(b, "g")[1].offset == 1
    with client.consumer(three, group="g") as consumer:
        assert places(fetched(consumer, 6)) == [(a, 1, n) for n in range(4, 10)]
    with client.consumer(three) as consumer, pytest.raises(NoGroup):
        consumer.committed()


def test_a_commit_that_is_fenced_in_one_topic_reaches_the_others(client, three, monkeypatch):
    a, b, _ = three
    with client.consumer([a, b], group="g") as consumer:
        fetched(consumer, 22)
        core = consumer._core.cores[a]

        def fenced(*_):
            raise Fenced("it went away")
            yield

        monkeypatch.setattr(core, "commit", fenced)
        with pytest.raises(Fenced, match="it went away"):
            consumer.commit()
        assert set(client.committed(b, "g")) == {0, 1}
        monkeypatch.undo()


def test_lags_are_by_topic(client, three):
    a, b, c = three
    with client.consumer(three, group="g") as consumer:
        assert consumer.lags() == {a: {0: 10, 1: 10}, b: {0: 1, 1: 1}, c: {0: 0, 1: 0}}
        assert consumer.lag() == 22


def test_seeking_is_in_one_topic_or_in_all(client, three):
    a, b, _ = three
    with client.consumer(three) as consumer:
        fetched(consumer, 22)
        consumer.seek(7, topic=a, partition=1)
        assert places(fetched(consumer, 3)) == [(a, 1, n) for n in (7, 8, 9)]
        consumer.seek("earliest", topic=b)
        assert places(fetched(consumer, 2)) == [(b, 0, 0), (b, 1, 0)]
        consumer.seek("earliest")
        assert places(fetched(consumer, 22)) == all_of(three)
        with pytest.raises(InvalidArgument, match=r"say which of .* with topic="):
            consumer.seek(7)
        with pytest.raises(NotAssigned, match="topic other is none of those"):
            consumer.seek(7, topic="other")
        with pytest.raises(NotAssigned, match="topic other is none of those"):
            consumer.commit({"other": {0: 1}})
    with client.consumer([a]) as consumer:
        consumer.seek(3, partition=0)
        assert consumer.position[a][0] == 3


def test_a_paused_topic_is_not_handed_out(client, three):
    a, b, _ = three
    with client.consumer(three) as consumer:
        consumer.seek("earliest")
        consumer.pause(a)
        consumer.pause(b, 1)
        assert consumer.paused == {a: [0, 1], b: [1]}
        assert places(fetched(consumer, 1)) == [(b, 0, 0)]
        assert consumer.fetch(wait=0.05) == []
        consumer.resume(a, 1)
        assert places(fetched(consumer, 10)) == [(a, 1, n) for n in range(10)]
        consumer.resume()
        assert consumer.paused == {}
        assert places(fetched(consumer, 11)) == sorted([(a, 0, n) for n in range(10)] + [(b, 1, 0)])


def test_members_share_the_partitions_of_each_topic(client, dial, url, three):
    other = client if url.startswith(("mem", "file")) else dial(url)
    with client.consumer(three, group="g") as one, other.consumer(three, group="g") as two:
        found = []
        while len({*places(found)}) < 22:
            found += one.fetch(wait=0.05) + two.fetch(wait=0.05)
        while any(len(each.assignment[name]) != 1 for each in (one, two) for name in three):
            one.fetch(wait=0.05)
            two.fetch(wait=0.05)


def test_the_application_is_told_of_each_topic(client, three):
    changes = []
    with client.consumer(three, group="g", on_assignment=changes.append) as consumer:
        fetched(consumer, 22)
        assert sorted(changes, key=lambda each: each.topic) == [AssignmentChange(name, [0, 1], []) for name in three]
        changes.clear()
    assert sorted(changes, key=lambda each: each.topic) == [AssignmentChange(name, [], [0, 1]) for name in three]


def test_topics_of_a_pattern_join_and_leave_while_it_runs(client, topic, soon):
    changes = []
    client.create_topic(f"{topic}-named")
    client.create_topic(f"{topic}.old")
    with client.consumer(
        [f"{topic}-named", f"{topic}.*"], group="g", start="latest", on_assignment=changes.append
    ) as consumer:
        assert consumer.topics == [f"{topic}-named", f"{topic}.old"]
        client.create_topic(f"{topic}-other")
        client.create_topic(f"{topic}.new")
        client.producer(f"{topic}.new").send(b"first")
        client.producer(f"{topic}-other").send(b"not ours")
        (record,) = fetched(consumer, 1)
        assert (record.topic, record.value) == (f"{topic}.new", b"first"), "a new topic is read from its first record"
        client.delete_topic(f"{topic}.old")
        while f"{topic}.old" in consumer.topics:
            assert consumer.fetch(wait=0.01) == []
        assert changes[-2:] == [AssignmentChange(f"{topic}.new", [0], []), AssignmentChange(f"{topic}.old", [], [0])]
        assert parts_of(consumer) == {f"{topic}-named", f"{topic}.new"}
        client.create_topic(f"{topic}.old")
        client.producer(f"{topic}.old").send(b"again")
        assert [record.value for record in fetched(consumer, 1)] == [b"again"]
    assert consumer._core not in consumer._core.connection.parts


def parts_of(consumer):
    """The topics whose cores its connection turns."""
    return {part.topic.name for part in consumer._core.connection.parts if isinstance(part, ConsumerCore)}


def test_a_pattern_may_choose_nothing_yet(client, topic, soon):
    with client.consumer([f"{topic}*"]) as consumer:
        assert consumer.topics == []
        assert (consumer.fetch(wait=0), consumer.position, consumer.lag()) == ([], {}, 0)
        client.create_topic(topic)
        client.producer(topic).send(b"v")
        assert places(fetched(consumer, 1)) == [(topic, 0, 0)]


def test_a_topic_that_is_deleted_keeps_no_verb_from_the_others(client, topic):
    """Also before it is noticed by a fetch: a loop of fetch and commit lives on."""
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        client.create_topic(name)
        client.producer(name).send(b"1")
    with client.consumer([f"{topic}-*", names[1]], group="g") as consumer:
        assert len(fetched(consumer, 3)) == 3
        client.delete_topic(names[0])
        consumer.commit()
        assert set(consumer.committed()) == set(consumer.lags()) == set(names[1:])
        consumer.pause()
        consumer.resume()
        consumer.seek("earliest")
        assert {record.topic for record in fetched(consumer, 2)} == set(names[1:])
        client.delete_topic(names[1])
        with pytest.raises(UnknownTopic):  # it was named
            consumer.commit()
        with pytest.raises((UnknownTopic, NotAssigned)):
            consumer.commit({names[0]: {0: 0}})
    assert client.group(names[2], "g").lag == 0


def test_a_named_topic_that_is_deleted_is_an_error(client, topic):
    client.create_topic(topic)
    client.create_topic(f"{topic}-2")
    with client.consumer([topic, f"{topic}-2"]) as consumer:
        client.delete_topic(topic)
        with pytest.raises(UnknownTopic):
            fetched(consumer, 1)


def test_a_look_for_new_topics_does_not_mind_a_named_one_that_is_gone(client, topic, soon):
    for name in (topic, f"{topic}.1"):
        client.create_topic(name)
    with client.consumer([topic, f"{topic}.*"]) as consumer:
        client.delete_topic(topic)
        client.create_topic(f"{topic}.2")
        while f"{topic}.2" not in consumer.topics and consumer._core.cores[topic].life.failure is None:
            assert client.ping() > 0
        for _ in range(5):
            assert client.topic(f"{topic}.1").name in consumer.topics


def test_topics_that_are_missing_are_one_error(client, topic):
    client.create_topic(topic)
    with pytest.raises(UnknownTopic, match=f"missing topics '{topic}-x', '{topic}-y': create"):
        client.consumer([f"{topic}-y", topic, f"{topic}-x"])
    with pytest.raises(UnknownTopic, match=f"missing topic '{topic}-x': create"):
        client.consumer([topic, f"{topic}-x"])


def test_what_makes_no_sense_is_refused(client, topic):
    client.create_topic(topic)
    with pytest.raises(InvalidArgument, match="reads nothing"):
        client.consumer([])
    with pytest.raises(InvalidArgument, match=r"is a pattern: give it in a list, as in consumer\(\['x-\*'\]\)"):
        client.consumer("x-*")
    for wrong in ({"positions": {0: 1}}, {"delivery": "mapped"}):
        with pytest.raises(InvalidArgument, match="are for one topic"):
            client.consumer([topic], **wrong)


def test_serializers_are_for_all_of_them(client, three):
    a, _, c = three
    client.producer(c).send_many([b"x", b"7"], partition=0)
    with client.consumer(three, value=(str, int)) as consumer:
        found, told = [], []
        while len(found) < 23 or not told:
            try:
                found += consumer.fetch(wait=60)
            except CannotDeserialize as error:
                told.append(error.record)
        assert places(told) == [(c, 0, 0)]
        assert sorted(record.value for record in found if record.topic != a) == [0, 0, 7]
        with pytest.raises(InvalidArgument, match="without value="):
            consumer.batches("arrow")
    assert places(found) == sorted([*all_of(three), (c, 0, 1)])


def test_what_an_interrupt_took_comes_again(topic):
    with connect(f"mem://{topic}") as client:
        for name in "ab":
            client.create_topic(name)
            client.producer(name).send_many([b"0", b"1", b"2"])
        calls = iter(range(100))

        def loads(data):
            if next(calls) == 4:  # in the middle of the second topic
                raise KeyboardInterrupt
            return int(data)

        with client.consumer(["a", "b"], value=(str, loads)) as consumer:
            with pytest.raises(KeyboardInterrupt):
                consumer.fetch()
            assert places(fetched(consumer, 6)) == [(name, 0, n) for name in "ab" for n in range(3)]


@pytest.mark.parametrize("what", ["begun", "back_to"])
def test_a_topic_may_join_while_a_call_is_noted(what):
    """The shell notes it without the client's lock, and the client's own thread adds topics of a pattern."""
    cores = ConsumerCores(None, Chosen(["t-*"]), ConsumerCore)  # type: ignore[arg-type]

    class Joining:
        def __setattr__(self, name, value):
            cores.cores["t-late"] = Joining()
            super().__setattr__(name, value)

        def __getattr__(self, name):
            cores.cores["t-later"] = Joining()
            return {0: 1}

    cores.cores = {"t-1": Joining(), "t-2": Joining()}
    assert getattr(cores, what).keys() == {"t-1", "t-2"}
    setattr(cores, what, {"t-1": {0: 5}})
    assert vars(cores.cores["t-1"]) == {what: {0: 5}}


def test_it_says_what_it_reads():
    with connect("mem://") as client:
        client.create_topic("a")
        with client.consumer(["b*", "a"], group="g") as consumer:
            assert repr(consumer) == "<TopicsConsumer of topics b*, a, group g>"
        assert repr(consumer) == "<TopicsConsumer of topics b*, a, group g, closed>"


def test_it_ends_when_it_is_closed(client, three):
    consumer = client.consumer(three, group="g", auto_commit=60)
    records = iter(consumer)
    for _ in range(22):
        next(records)
    consumer.fetch(wait=0)
    consumer.close()
    consumer.close()
    assert consumer.closed
    assert list(records) == []
    with pytest.raises(Closed, match=r"the consumer of topics .* was closed"):
        consumer.fetch()
    assert [client.group(name, "g").lag for name in three] == [0, 0, 0]


@pytest.mark.parametrize(
    ("topics", "present", "found"),
    [
        (["b", "a"], ["a", "b", "c"], ["a", "b"]),
        (["a*"], ["a", "ab", "b", "ba"], ["a", "ab"]),
        (["a?"], ["a", "ab", "abc"], ["ab"]),
        (["[ab]-1", "c"], ["a-1", "b-1", "c", "c-1"], ["a-1", "b-1", "c"]),
        (["a.b*"], ["a.b", "axb"], ["a.b"]),
        (["A*"], ["a", "A"], ["A"]),
        (["*"], ["a", "b"], ["a", "b"]),
    ],
)
def test_names_and_patterns_choose(topics, present, found):
    assert Chosen(topics).among(present) == found


def test_a_topic_of_a_pattern_that_goes_just_as_it_is_joined_is_missed_by_nobody(client, url, topic, monkeypatch):
    add = ConsumerCores._add
    for letter in "ab":
        client.create_topic(f"{topic}-{letter}")
    client.producer(f"{topic}-b").send(b"v")
    with connect(url) as other:

        def add_and_delete(cores, topics, *, are_new):
            add(cores, topics, are_new=are_new)
            if not are_new:
                other.delete_topic(f"{topic}-a")

        monkeypatch.setattr(ConsumerCores, "_add", add_and_delete)
        with client.consumer([f"{topic}-*"]) as consumer:
            assert [record.topic for record in fetched(consumer, 1)] == consumer.topics == [f"{topic}-b"]


def test_a_topic_may_join_while_the_application_is_told_of_the_end(penstock_client):
    told = []

    def tell(change):
        told.append(change)
        if change.taken:
            penstock_client.create_topic(f"t-{len(told)}")
            penstock_client._driver.run(consumer._core.joined(penstock_client._connection.deadline()))

    penstock_client.create_topic("t-0")
    consumer = penstock_client.consumer(["t-*"], group="g", on_assignment=tell)
    assert consumer.fetch(wait=0) == []
    consumer.close()
    assert consumer.closed
    assert [change.taken for change in told] == [[], [0]]
