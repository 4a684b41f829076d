"""penstock as a system of the lab: every variant passes what it is given, at the level that was asked for."""

from __future__ import annotations

import pytest

from perf.systems import penstock as lab_penstock
from perf.systems.penstock import SYSTEMS, TwoProducers, connected

VALUES = [b"%06d" % number for number in range(5000)]


@pytest.fixture(scope="module", params=SYSTEMS, ids=lambda system: system.name)
def served(request, tmp_path_factory):
    with request.param.serve(tmp_path_factory.mktemp("served"), "written") as address:
        yield request.param, address


def test_what_is_produced_is_consumed_and_again(served):
    system, address = served
    system.create(address, "stored")
    system.produce(address, "stored", VALUES)
    for _ in range(2):
        assert system.consume(address, "stored", len(VALUES)) == VALUES


def test_what_is_sent_from_now_on_is_received(served):
    system, address = served
    system.create(address, "live")
    system.produce(address, "live", VALUES[:10])
    with system.receiver(address, "live") as receive, system.sender(address, "live") as send:
        send(VALUES[10:500])
        got: list[bytes] = []
        while len(got) < 490:
            got += receive()
    if not isinstance(system, TwoProducers):
        assert got == VALUES[10:500]
    assert sorted(got) == sorted(VALUES[10:500])


def test_an_acknowledged_sender_returns_when_the_records_are_there(served):
    system, address = served
    system.create(address, "acknowledged")
    with system.acknowledged(address, "acknowledged") as send, connected(address) as client:
        send(VALUES[:1])
        assert client.offsets("acknowledged", "latest") == {0: 1}
        send(VALUES[1:100])
        assert client.offsets("acknowledged", "latest") == {0: 100}


def test_the_address_carries_the_level_that_topics_get(served):
    system, address = served
    system.create(address, "level")
    with connected(address) as client:
        assert client.topic("level").settings["commit"] == "written"


def test_every_scheme_has_every_delivery_under_a_name_of_its_own():
    ways = {(scheme, delivery) for scheme in lab_penstock.SCHEMES for delivery in lab_penstock.DELIVERIES}
    assert {(system.scheme, system.delivery) for system in SYSTEMS} == {*ways, ("ipc", "control")}
    assert len({system.name for system in SYSTEMS}) == len(SYSTEMS)
