"""A member of a group whose session ended by its silence, and which comes back: at its own place if no other was
given its partitions, else at the cursors of the group."""

from __future__ import annotations

import pytest
from penstock.broker.errors import Fenced
from penstock.clients import AssignmentChange
from penstock.clients.memory_broker import MemoryBroker

SILENCE_S = 11.0


@pytest.mark.parametrize("commits", [False, True])
@pytest.mark.parametrize("several", [False, True])
def test_partitions_that_went_to_another_member_are_read_from_the_cursor(several: bool, commits: bool) -> None:
    """Also when no member commits meanwhile: the application was told that they are taken, and dropped its work."""
    broker, told = MemoryBroker(), list[AssignmentChange]()
    mine, other = broker.connect(), broker.connect()
    mine.create_topic("t")
    mine.producer("t").send_many([b"%d" % number for number in range(28)])
    consumer = mine.consumer(["t"] if several else "t", group="g", member="c1", on_assignment=told.append)
    assert len(consumer.fetch(max_records=10)) == 10
    consumer.commit()
    assert len(consumer.fetch()) == 18
    broker.advance(SILENCE_S)
    with other.consumer("t", group="g", member="c2") as second:
        assert second.fetch()[0].offset == 10
        if commits:
            with pytest.raises(Fenced, match="is read again"):
                consumer.commit()
        while len(told) < 2:  # until it has joined again
            assert consumer.fetch(wait=0.1) == []
    found = consumer.fetch(wait=20)
    assert found[0].offset == 10
    assert [(each.given, each.taken) for each in told] == [([0], []), ([], [0]), ([0], [])]
    consumer.close()


def test_a_member_that_comes_back_to_its_partitions_goes_on_where_it_was() -> None:
    broker = MemoryBroker()
    client = broker.connect()
    client.create_topic("t")
    client.producer("t").send_many([b"%d" % number for number in range(28)])
    with client.consumer("t", group="g", member="c1") as consumer:
        assert len(consumer.fetch(max_records=10)) == 10
        consumer.commit()
        assert len(consumer.fetch(max_records=5)) == 5
        broker.advance(SILENCE_S)
        assert consumer.fetch(wait=20)[0].offset == 15
