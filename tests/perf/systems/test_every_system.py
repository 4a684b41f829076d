"""One body over every message system of the lab that can run here: what goes in comes out, and nothing is left behind.

A system that is absent is skipped with its own reason. Those whose server takes seconds to start run under `make soak`.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from support.servers import descendants, end_of, is_local, listening

from perf.systems import every
from perf.systems.penstock import TwoProducers
from perf.systems.system import Receiver

VALUES = [b"%0100d" % number for number in range(1000)]
SLOW = {"Apache Kafka", "RabbitMQ quorum queue", "RabbitMQ stream"}
ENDS_S = 10.0


def _cases() -> Iterator[object]:
    for system in every():
        for durability in sorted(system.durabilities):
            marks = [pytest.mark.soak] if system.name in SLOW else []
            yield pytest.param(system, durability, id=f"{system.name}, {durability}", marks=marks)


@pytest.mark.parametrize(("system", "durability"), list(_cases()))
def test_what_a_system_is_given_comes_out_and_its_server_is_gone_afterwards(system, durability, tmp_path):
    if reason := system.absent():
        pytest.skip(reason)
    others = descendants(os.getpid())  # brokers that serve the whole session, for example
    with ExitStack() as watched:
        with system.serve(tmp_path, durability) as address:
            servers = descendants(os.getpid()) - others
            ends = [watched.enter_context(end_of(pid)) for pid in servers]
            sockets = listening(servers)
            assert [place for place in sockets if not is_local(place)] == []
            _give_back_what_was_produced(system, address)
            _pass_on_what_is_sent(system, address)
            _keep_what_was_acknowledged(system, address)
        assert servers
        assert sockets
        assert all(select.select([end], [], [], ENDS_S)[0] for end in ends)
        assert sockets & listening() == set()
    assert all(system.versions().values())


def _give_back_what_was_produced(system, address: str) -> None:
    system.create(address, "produced")
    system.produce(address, "produced", VALUES)
    assert list(system.consume(address, "produced", len(VALUES))) == VALUES


def _pass_on_what_is_sent(system, address: str) -> None:
    system.create(address, "sent")
    with system.receiver(address, "sent") as receive, system.sender(address, "sent") as send:
        send(VALUES[:1])
        assert _received(receive, 1) == VALUES[:1]
        send(VALUES[1:50])
        producers = 2 if isinstance(system, TwoProducers) else 1
        assert _of_each(producers, _received(receive, 49)) == _of_each(producers, VALUES[1:50])


def _of_each(producers: int, values: list[bytes]) -> list[list[bytes]]:
    """The values of each of the producers that send in turn: only those of one have an order."""
    return [[value for value in values if int(value) % producers == number] for number in range(producers)]


def _keep_what_was_acknowledged(system, address: str) -> None:
    system.create(address, "acknowledged")
    with system.acknowledged(address, "acknowledged") as send:
        send(VALUES[:1])
        send(VALUES[1:10])
        assert list(system.consume(address, "acknowledged", 10)) == VALUES[:10]


def _received(receive: Receiver, count: int) -> list[bytes]:
    values: list[bytes] = []
    while len(values) < count:
        values += receive()
    return values


@pytest.mark.parametrize(
    "system", [system for system in every() if len(system.durabilities) == 1], ids=lambda s: s.name
)
def test_a_system_refuses_the_durability_that_it_has_not(system, tmp_path):
    (lacking,) = {"durable", "written"} - system.durabilities
    with pytest.raises(ValueError, match=lacking), system.serve(tmp_path, lacking):
        pass


def test_every_system_has_a_name_of_its_own():
    names = [system.name for system in every()]
    assert len(set(names)) == len(names)
    assert {"Redis Streams", "NATS JetStream", "RabbitMQ stream", "beanstalkd", "Apache Kafka"} <= set(names)
