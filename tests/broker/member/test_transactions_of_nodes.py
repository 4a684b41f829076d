"""Transactions on three real nodes that are killed and cut off: each is there whole, once, or not at all.

Two programs under each name turn an input into results: each reads up to which position the last epoch has come,
stages the results of the next positions and its own position beside them, and commits. Whichever is later is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import penstock
import pytest
from penstock.errors import StageLost
from support.cluster import ClusterProcesses
from support.cluster_load import PATIENCE_S, Repeating, stored
from support.peer_proxies import PeerProxies

NAMES = ("x", "y")
INPUT = 7
"""Positions that an epoch takes along."""

Disturbance = Callable[[ClusterProcesses, PeerProxies], None]


def committing(name: str, program: str) -> Callable[[penstock.Client], Callable[[], None]]:
    """Commits one epoch behind the last, with the results of the next positions."""

    def make(client: penstock.Client) -> Callable[[], None]:
        offset, last, end, attempts = 0, 0, 0, iter(range(1_000_000))

        def catch_up(epoch: int) -> None:
            """Read up to which position an epoch came, which may be decided and not readable yet."""
            nonlocal offset, last, end
            while True:
                records = client.read("positions", 0, offset, wait=0.0 if last >= epoch else PATIENCE_S)
                if not records:
                    return
                offset += len(records)
                for words in ((record.value or b"").decode().split("/") for record in records):
                    if words[0] == name:
                        last, end = int(words[2]), int(words[4])

        def once() -> None:
            catch_up(client.transaction_epoch(name) or 0)
            attempt = f"{program}-{next(attempts)}"
            with suppress(StageLost), client.transaction(name, last + 1) as transaction:
                results, positions = transaction.producer("results"), transaction.producer("positions")
                for position in range(end, end + INPUT):
                    results.send_nowait(f"{name}/{attempt}/{position}".encode(), partition=position % 2)
                positions.send(f"{name}/{attempt}/{last + 1}/{end}/{end + INPUT}".encode())

        return once

    return make


def check(results: list[list[bytes]], positions: list[bytes], name: str) -> int:
    """Each epoch goes on where the one before ended, and its results are there, once, and no others. Their number."""
    wanted: list[list[bytes]] = [[], []]
    end, epoch = 0, 0
    for _, attempt, *numbers in (words for value in positions if (words := value.decode().split("/"))[0] == name):
        assert list(map(int, numbers)) == [epoch + 1, end, end + INPUT], (name, attempt, numbers)
        for position in range(end, end + INPUT):
            wanted[position % 2].append(f"{name}/{attempt}/{position}".encode())
        epoch, end = epoch + 1, end + INPUT
    found = [[value for value in some if value.startswith(f"{name}/".encode())] for some in results]
    assert found == wanted, name
    return epoch


def test_the_check_sees_an_epoch_in_part_and_one_that_overlaps() -> None:
    whole = [[f"x/a-0/{position}".encode() for position in range(at, INPUT, 2)] for at in (0, 1)]
    assert check(whole, [b"x/a-0/1/0/7"], "x") == 1
    with pytest.raises(AssertionError):
        check([whole[0], whole[1][:-1]], [b"x/a-0/1/0/7"], "x")
    with pytest.raises(AssertionError):
        check([[*whole[0], b"x/b-0/0"], whole[1]], [b"x/a-0/1/0/7"], "x")
    with pytest.raises(AssertionError):
        check(whole, [b"x/a-0/1/0/7", b"x/b-0/2/0/7"], "x")


def killed(cluster: ClusterProcesses, _: PeerProxies) -> None:
    with cluster.without_leader():
        pass


def all_killed(cluster: ClusterProcesses, _: PeerProxies) -> None:
    cluster.kill_all()
    for number in cluster.numbers:
        cluster.start(number)
    for node in cluster.nodes.values():
        node.wait_ready()


def deaf(cluster: ClusterProcesses, proxies: PeerProxies) -> None:
    """The leader is heard, and hears nothing."""
    leader, term = cluster.leader(), cluster.term()
    for other in set(cluster.numbers) - {leader}:
        proxies.cut(other, leader)
    assert cluster.leader(above=term) != leader
    proxies.heal()


def dumb(cluster: ClusterProcesses, proxies: PeerProxies) -> None:
    """The leader hears, and is not heard."""
    leader, term = cluster.leader(), cluster.term()
    for other in set(cluster.numbers) - {leader}:
        proxies.cut(leader, other)
    assert cluster.leader(above=term) != leader
    proxies.heal()


@contextmanager
def running(folder: Path) -> Iterator[tuple[ClusterProcesses, PeerProxies, list[Repeating]]]:
    """A cluster with four programs, and a check of what they have done."""
    with PeerProxies(folder, [1, 2, 3]) as proxies, ClusterProcesses(folder, peers_of=proxies.peers_of) as cluster:
        cluster.leader()
        with penstock.connect(cluster.url, timeout=PATIENCE_S) as client:
            client.create_topic("results", partitions=2)
            client.create_topic("positions", partitions=1)
        programs = [Repeating(cluster.url, committing(name, each)) for name in NAMES for each in "ab"]
        with ExitStack() as stack:
            for program in programs:
                stack.enter_context(program)
            yield cluster, proxies, programs
        results, (positions,) = stored(cluster.url, "results", 2), stored(cluster.url, "positions", 1)
        epochs = [check(results, positions, name) for name in NAMES]
        assert min(epochs) > 2, epochs


def disturb(folder: Path, disturbances: list[Disturbance]) -> None:
    with running(folder) as (cluster, proxies, programs):
        for disturbance in disturbances:
            for each in programs:
                each.more(2)
            disturbance(cluster, proxies)
        for each in programs:
            each.more(2)


def test_transactions_are_whole_whatever_happens_to_nodes_and_their_links(tmp_path: Path) -> None:
    disturb(tmp_path, [killed, all_killed, deaf, dumb])


@pytest.mark.soak
@pytest.mark.timeout(3600)  # 25 starts of a cluster, each with two epochs of four programs behind it
@pytest.mark.parametrize("disturbance", [killed, all_killed, deaf, dumb])
def test_transactions_are_whole_however_often_it_happens(tmp_path: Path, disturbance: Disturbance) -> None:
    disturb(tmp_path, [disturbance] * 25)
