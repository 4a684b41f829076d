"""The network in memory loses, doubles, delays and cuts what it says, the same way for the same seed."""

from __future__ import annotations

from penstock.broker.raft.messages import Kind, Message
from support.peer_network import PeerNetwork
from support.samples import BATCH


def heard(network: PeerNetwork, node: int, steps: int = 20) -> list[int]:
    found: list[int] = []
    for _ in range(steps):
        network.step()
        found += [each.message.index for each in network.links[node].take()]
    return found


def send(network: PeerNetwork, count: int, sender: int = 1, to: int = 2) -> None:
    for index in range(count):
        network.links[sender].put(Message(Kind.APPEND, to, sender, index=index), [BATCH])
    network.links[sender].flush()


def test_a_calm_network_keeps_the_order() -> None:
    network = PeerNetwork([1, 2], 1)
    send(network, 9)
    assert heard(network, 2) == list(range(9))


def test_a_rough_network_does_all_it_is_told_to_and_the_seed_decides() -> None:
    lives = []
    for seed in (1, 1, 2):
        network = PeerNetwork([1, 2], seed, drop=0.2, double=0.2, delay=3)
        send(network, 200)
        lives.append(heard(network, 2))
        assert min(network.lost, network.doubled, network.overtaken) > 0
        assert len(lives[-1]) == 200 - network.lost + network.doubled
        assert lives[-1] != sorted(lives[-1])
    assert lives[0] == lives[1] != lives[2]


def test_a_cut_goes_one_way_and_healing_renews_both_ends() -> None:
    network = PeerNetwork([1, 2, 3], 1)
    network.cut(1, 2)
    send(network, 3)
    assert heard(network, 2) == []
    send(network, 3, sender=2, to=1)
    assert heard(network, 1) == [0, 1, 2]
    network.heal()
    assert [network.links[node].renewed() for node in (1, 2, 3)] == [{2}, {1}, set()]


def test_a_restart_loses_what_is_on_its_way() -> None:
    network = PeerNetwork([1, 2], 1)
    send(network, 3)
    network.restart(2)
    assert heard(network, 2) == []
    assert (network.links[1].renewed(), network.links[2].renewed()) == ({2}, {1})
