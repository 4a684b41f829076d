"""Three real nodes under load: killed, stopped, restarted, handed over. Nothing acknowledged is lost, doubled or
reordered."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator

import penstock
import pytest
from penstock.cli.app import run
from penstock.cli.exits import OK, UNAVAILABLE
from penstock.clients.aio.client import AsyncClient
from penstock.clients.aio.driver import AsyncDriver
from penstock.clients.cluster import cluster_state, transfer_lead
from penstock.clients.opening import open_connection
from penstock.exporter import Exporter, ExporterConfig
from penstock.metrics import CLUSTERED
from support.checker import check_stored
from support.cluster import ClusterProcesses
from support.cluster_load import PATIENCE_S, Repeating, Sender, stored
from support.sources import ROOT

PARTITIONS = 2


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    """One cluster for all tests: starting nodes takes longer than what is done to them."""
    with ClusterProcesses(tmp_path_factory.mktemp("c")) as found:
        yield found


@pytest.fixture
def cluster(processes: ClusterProcesses) -> ClusterProcesses:
    """All of its nodes run, and one leads."""
    for number in processes.numbers:
        if number not in processes.nodes:
            processes.start(number)
    for node in processes.nodes.values():
        node.wait_ready()
    processes.leader()
    return processes


@pytest.fixture
def topic(cluster: ClusterProcesses) -> str:
    """A topic of its own for each test."""
    with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
        return client.create_topic(f"t-{len(client.topics())}", partitions=PARTITIONS).name


def senders(cluster: ClusterProcesses, topic: str) -> list[Sender]:
    """One record at a time to one partition, and many at a time to the other."""
    return [Sender(cluster.url, topic, "lone"), Sender(cluster.url, topic, "many", partition=1, window=50)]


def check(cluster: ClusterProcesses, topic: str, *all_of: Sender) -> None:
    """Nothing acknowledged is lost, and nothing is there twice or out of order."""
    verdict = check_stored({each.label: each.sent for each in all_of}, stored(cluster.url, topic, PARTITIONS))
    bad = verdict.lost, verdict.duplicate, verdict.reordered, verdict.phantom
    assert not any(bad), str(verdict)
    assert verdict.ok == sum(len(each.sent.acknowledged) for each in all_of)


def test_a_leader_that_is_killed_loses_nothing_that_was_acknowledged(cluster: ClusterProcesses, topic: str) -> None:
    lone, many = senders(cluster, topic)
    with lone, many:
        for _ in range(3):
            lone.more(20)
            with cluster.without_leader():
                lone.more(20)
                many.more(5)
    check(cluster, topic, lone, many)


def test_a_follower_that_is_killed_catches_up_and_may_lead(cluster: ClusterProcesses, topic: str) -> None:
    lone, many = senders(cluster, topic)
    with lone, many:
        leader, term = cluster.leader(), cluster.term()
        follower = min(set(cluster.numbers) - {leader})
        cluster.kill(follower)
        lone.more(50)
        many.more(20)
        cluster.start(follower, wait=True)
        lone.more(20)
        cluster.kill(leader)  # the two others are a majority, with what the restarted one missed
        lone.more(20)
        assert cluster.leader(above=term) != leader
    check(cluster, topic, lone, many)


def test_a_leader_that_is_stopped_is_replaced_and_steps_down_when_it_goes_on(
    cluster: ClusterProcesses, topic: str
) -> None:
    lone, many = senders(cluster, topic)
    with lone, many:
        lone.more(20)
        leader, term = cluster.leader(), cluster.term()
        cluster.signal(leader, signal.SIGSTOP)
        assert cluster.leader(above=term) != leader
        lone.more(20)
        cluster.signal(leader, signal.SIGCONT)
        lone.more(50)
        many.more(5)
    check(cluster, topic, lone, many)


def test_all_nodes_killed_at_once_keep_what_was_acknowledged(cluster: ClusterProcesses, topic: str) -> None:
    lone, many = senders(cluster, topic)
    with lone, many:
        for _ in range(2):
            lone.more(20)
            many.more(5)
            cluster.kill_all()
            for number in cluster.numbers:
                cluster.start(number)
            lone.more(20)
            many.more(5)
            for node in cluster.nodes.values():
                node.wait_ready()
    check(cluster, topic, lone, many)


def test_a_leader_that_is_told_to_end_drains_and_another_one_leads(cluster: ClusterProcesses, topic: str) -> None:
    lone, many = senders(cluster, topic)
    with lone, many:
        lone.more(20)
        leader, term = cluster.leader(), cluster.term()
        node = cluster.nodes.pop(leader)
        before = {number: len(other.roles) for number, other in cluster.nodes.items()}
        assert node.end() == 0, node.errors()
        node.close()
        chosen = cluster.leader(above=term)
        assert chosen != leader
        found = cluster.nodes[chosen].roles[before[chosen] :]
        assert ("candidate", term) not in found, f"it was told to lead, and asked no other before: {found}"
        lone.more(20)
        many.more(5)
    check(cluster, topic, lone, many)


def test_a_leader_without_followers_ends_all_the_same(cluster: ClusterProcesses) -> None:
    leader = cluster.leader()
    for number in cluster.numbers:
        if number != leader:
            cluster.signal(number, signal.SIGSTOP)
    node = cluster.nodes.pop(leader)
    try:
        assert node.end() == 0, node.errors()
    finally:
        for number in cluster.nodes:
            cluster.signal(number, signal.SIGCONT)
        node.close()


def test_the_last_node_ends_without_a_word_of_errors(cluster: ClusterProcesses) -> None:
    """It knows of no leader that it could hand anything to."""
    for number in cluster.numbers[1:]:
        cluster.kill(number)
    node = cluster.nodes.pop(1)
    while not node.roles or node.roles[-1][0] != "candidate":
        assert node.watch(30.0), node.errors()
    assert node.end() == 0
    assert "should not happen" not in node.errors()
    node.close()


# -- consumers, workers and transactions of ordinary clients ---------------------------------------

LEASE_S = 10.0

DISTURBANCES: dict[str, Callable[[ClusterProcesses], None]] = {}


def disturbance(how: Callable[[ClusterProcesses], None]) -> Callable[[ClusterProcesses], None]:
    DISTURBANCES[how.__name__] = how
    return how


@disturbance
def killed(cluster: ClusterProcesses) -> None:
    """The leader is killed, and comes back once another leads."""
    with cluster.without_leader():
        pass


@disturbance
def handed_over(cluster: ClusterProcesses) -> None:
    """The leader hands over to the next node."""
    leader, term = cluster.leader(), cluster.term()
    chosen = leader % len(cluster.numbers) + 1
    begun = transfer_lead(cluster.urls, chosen, PATIENCE_S)
    assert (begun.node, begun.term) == (chosen, term)
    assert cluster.leader(above=term) == chosen
    assert cluster_state(cluster.urls, PATIENCE_S).leader == chosen


def consuming(topic: str, seen: list[bytes]) -> Callable[[penstock.Client], Callable[[], None]]:
    def make(client: penstock.Client) -> Callable[[], None]:
        consumer = client.consumer(topic, group="g")

        def once() -> None:
            seen.extend(record.value or b"" for record in consumer.fetch(wait=1.0))
            consumer.commit()

        return once

    return make


def working(topic: str, done: Counter[bytes]) -> Callable[[penstock.Client], Callable[[], None]]:
    """Enqueue a task and do what there is."""

    def make(client: penstock.Client) -> Callable[[], None]:
        producer, worker = client.producer(topic), client.worker(topic, group="w", lease=LEASE_S)
        numbers = iter(range(1_000_000))

        def once() -> None:
            producer.send(b"%d" % next(numbers))
            tasks = worker.fetch(wait=1.0)
            worker.ack(tasks)
            done.update(task.value or b"" for task in tasks)

        return once

    return make


def transacting(topic: str) -> Callable[[penstock.Client], Callable[[], None]]:
    """Commit a record to each of two partitions, once for each epoch."""

    def make(client: penstock.Client) -> Callable[[], None]:
        epochs, producer = iter(range(1, 1_000_000)), client.producer(topic)

        def once() -> None:
            epoch = next(epochs)
            with producer.transaction(id=topic, epoch=epoch):
                for partition in range(2):
                    producer.send(b"%d" % epoch, partition=partition)

        return once

    return make


def finish(cluster: ClusterProcesses, topic: str, done: Counter[bytes], tasks: set[bytes]) -> None:
    """Work off what is left: tasks whose lease never reached its worker come when it has run out."""
    with penstock.connect(cluster.url, timeout=PATIENCE_S) as client, client.worker(topic, group="w") as worker:
        while set(done) < tasks:
            left = worker.fetch(wait=2 * LEASE_S)
            assert left, f"{tasks - set(done)} were not done and are not given out"
            worker.ack(left)
            done.update(task.value or b"" for task in left)


@pytest.mark.parametrize("how", DISTURBANCES)
def test_ordinary_clients_go_on_under_the_next_leader(cluster: ClusterProcesses, how: str) -> None:
    seen, done = list[bytes](), Counter[bytes]()
    load, tasks_, pairs_ = (f"{name}-{how}" for name in ("load", "tasks", "pairs"))
    with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
        for topic, partitions in ((load, 1), (tasks_, 1), (pairs_, 2)):
            client.create_topic(topic, partitions=partitions)
    consumer = Repeating(cluster.url, consuming(load, seen))
    worker = Repeating(cluster.url, working(tasks_, done))
    pairs = Repeating(cluster.url, transacting(pairs_))
    sender = Sender(cluster.url, load, "s")
    with sender, consumer, worker, pairs:
        for _ in range(2):
            for each in (sender, consumer, worker, pairs):
                each.more(5)
            DISTURBANCES[how](cluster)
        for each in (sender, consumer, worker, pairs):
            each.more(5)
    log = stored(cluster.url, load, 1)
    verdict = check_stored({"s": sender.sent}, log)
    assert not any((verdict.lost, verdict.duplicate, verdict.reordered)), str(verdict)
    assert seen, "the group was given records"
    assert set(log[0][: len(set(seen))]) == set(seen), "none is left out, and none is read that is not stored"
    first, second = stored(cluster.url, pairs_, 2)
    assert first == second == [b"%d" % epoch for epoch in range(1, len(first) + 1)], "each epoch once and whole"
    assert len(first) >= pairs.done
    tasks = stored(cluster.url, tasks_, 1)[0]
    assert len(tasks) == len(set(tasks)), "no task is there twice"
    assert set(done) <= set(tasks)
    finish(cluster, tasks_, done, set(tasks))
    assert set(done.values()) == {1}, "what was acked is never given out again"


def test_the_reference_names_the_counters_of_a_member(cluster: ClusterProcesses) -> None:
    with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
        values = {name: value for name, value in client.stats().items() if name.startswith("cluster.")}
    page = (ROOT / "docs" / "reference.md").read_text().partition("## Counters of a member")[2]
    assert set(re.findall(r"`(cluster\.\w+)`", page)) == set(values)
    assert values["cluster.leads"] == 1
    assert values["cluster.applied"] == values["cluster.committed"] > 0


def test_the_command_line_shows_the_cluster_and_moves_the_lead(
    cluster: ClusterProcesses, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    leader = cluster.leader()
    other = leader % len(cluster.numbers) + 1
    for url in (cluster.url, cluster.urls[other - 1]):
        assert run(["cluster", "status", "--json", "--url", url]) == 0
        shown = json.loads(capsysbinary.readouterr().out)
        assert (shown["cluster"], shown["leader"], shown["term"]) == (cluster.name, leader, cluster.term())
        assert [each["id"] for each in shown["members"]] == cluster.numbers
        assert [each["role"] == "leader" for each in shown["members"]] == [n == leader for n in cluster.numbers]
        assert shown["members"][leader - 1]["state"] == "serving"
        assert shown["members"][leader - 1]["free_bytes"] > 0
        assert shown["members"][other - 1]["addresses"] == [cluster.urls[other - 1]]
    assert run(["cluster", "transfer", "--to", str(leader), "--url", cluster.url, "--json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["leader"] == leader
    assert run(["cluster", "transfer", "--to", "9", "--url", cluster.url]) == 2
    assert "node 9 is none of the cluster" in capsysbinary.readouterr().err.decode()
    assert run(["cluster", "transfer", "--to", str(other), "--url", cluster.url, "--json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)["leader"] == other


def test_every_node_shows_its_own_counters_and_metrics(
    cluster: ClusterProcesses, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    async def scraped(url: str) -> str:
        connection = open_connection(url, timeout=PATIENCE_S, name="exporter", clock=time.monotonic)
        async with AsyncClient(AsyncDriver(connection)) as client:
            return (await Exporter(client, ExporterConfig(url=url, metrics=())).scrape()).decode()

    def counters() -> dict[int, dict[str, int]]:
        found = {}
        for number, url in zip(cluster.numbers, cluster.urls, strict=True):
            assert run(["stats", "cluster", "--url", url, "--json"]) == 0
            found[number] = json.loads(capsysbinary.readouterr().out)
        return found

    shown = counters()
    while {each["cluster.leader"] for each in shown.values()} != {n for n in shown if shown[n]["cluster.leads"]}:
        shown = counters()  # until all have heard of the leader of the newest term
    assert sum(each["cluster.leads"] for each in shown.values()) == 1
    for number, url in zip(cluster.numbers, cluster.urls, strict=True):
        text = asyncio.run(scraped(url))
        assert "\npenstock_up 1\n" in text
        assert f"\npenstock_cluster_leads {shown[number]['cluster.leads']}\n" in text
        names = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
        assert {f"penstock_{each.metric}" for each in CLUSTERED} <= names


def test_what_a_node_said_before_it_ended_is_not_told_as_news(cluster: ClusterProcesses) -> None:
    leader = cluster_state(cluster.urls, PATIENCE_S).leader
    gone = leader % len(cluster.numbers) + 1
    others = [url for number, url in zip(cluster.numbers, cluster.urls, strict=True) if number != gone]
    cluster.kill(gone)
    deadline = time.monotonic() + PATIENCE_S
    while (found := cluster_state(others, PATIENCE_S).members[gone - 1]).state != "unreachable":
        assert time.monotonic() < deadline, found
    assert (found.node, found.free_bytes, found.clock_us) == (gone, -1, 0)
    cluster.start(gone)


def test_a_node_that_is_alone_shows_its_counters(
    cluster: ClusterProcesses, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in cluster.numbers[1:]:
        cluster.kill(number)
    monkeypatch.setenv("PENSTOCK_TIMEOUT_S", "1s")
    url = cluster.urls[0]
    while True:  # until it hears of no leader any more
        assert run(["stats", "cluster", "--url", url, "--json"]) == 0
        if not json.loads(capsysbinary.readouterr().out)["cluster.leader"]:
            break


def replaced(cluster: ClusterProcesses, lost: int, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    """Replace a disk, as often as it takes: once the leader has refused the new directory. Waits until it votes."""
    for _ in range(500):
        code = run(["cluster", "replace", str(lost), "--url", cluster.url])
        error = capsysbinary.readouterr().err.decode()
        if code == OK or "has not fetched everything" in error:
            break
        assert code == UNAVAILABLE or f"node {lost} has not come with another directory" in error, error
    else:
        pytest.fail("it was never refused")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        state = cluster_state(cluster.urls, PATIENCE_S)
        found = next(each for each in state.members if each.node == lost)
        if state.leader == state.node and (found.role, found.state) == ("follower", "replicating"):
            return
        assert time.monotonic() < deadline, state


def test_a_lost_disk_is_refused_until_it_is_replaced(
    cluster: ClusterProcesses, topic: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    lone, many = senders(cluster, topic)
    leader = cluster_state(cluster.urls, PATIENCE_S).leader
    lost = min(set(cluster.numbers) - {leader})
    with lone, many:
        lone.more(20)
        many.more(5)
        assert run(["cluster", "replace", str(lost), "--url", cluster.url]) == 2
        assert f"node {lost} has not come with another directory" in capsysbinary.readouterr().err.decode()
        cluster.kill(lost)
        shutil.rmtree(cluster.folder / f"data{lost}")
        cluster.start(lost, wait=True)
        lone.more(20)
        replaced(cluster, lost, capsysbinary)
        cluster.kill(leader)
        lone.more(20)
        many.more(5)
    check(cluster, topic, lone, many)


def test_a_second_lost_disk_is_replaced_while_the_node_of_the_first_one_leads(
    cluster: ClusterProcesses, topic: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """The second one reads of the first directories in another append than of the replacement."""
    with penstock.connect(cluster.url, timeout=PATIENCE_S) as client, client.producer(topic) as producer:
        for _ in range(200):
            producer.send(b"x" * 15_000, partition=0)
            producer.flush()
    leader = cluster_state(cluster.urls, PATIENCE_S).leader
    first, second = (number for number in cluster.numbers if number != leader)
    for lost in (first, second):
        cluster.kill(lost)
        shutil.rmtree(cluster.folder / f"data{lost}")
        cluster.start(lost, wait=True)
        replaced(cluster, lost, capsysbinary)
        deadline = time.monotonic() + PATIENCE_S
        while (state := cluster_state(cluster.urls, PATIENCE_S)).leader != first:
            assert time.monotonic() < deadline, state
            run(["cluster", "transfer", "--to", str(first), "--url", cluster.url])
            capsysbinary.readouterr()


@pytest.mark.soak
def test_a_leader_that_is_killed_over_and_over_loses_nothing(cluster: ClusterProcesses, topic: str) -> None:
    lone, many = senders(cluster, topic)
    with lone, many:
        for _ in range(30):
            lone.more(20)
            killed(cluster)
            lone.more(20)
            many.more(5)
    check(cluster, topic, lone, many)
