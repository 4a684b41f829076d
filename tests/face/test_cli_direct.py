"""What the command line shows of producers that append by themselves."""

from __future__ import annotations

import os

import penstock
import pytest
from penstock.storage.lending.attaching import MISSING

from .conftest import Cli, Served

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"logs are lent {MISSING}")


def test_a_topic_shows_to_which_producers_its_partitions_are_lent(on: Cli, broker: Served, topic: str) -> None:
    on("topic", "create", topic, "--partitions", "2", "--commit", "written")
    assert "lent to" not in on("topic", "show", topic).text
    with penstock.connect(broker.unix) as client:
        with client.producer(topic, name="feed", direct=True) as producer:
            producer.send(b"x", partition=1)
            assert producer.direct.partitions == [1]
            rows = [line.split() for line in on("topic", "show", topic).text.splitlines()[-3:]]
            assert rows[0][-4:] == ["lent", "to", "borrowed", "recalled"]
            assert rows[1][-3:] == ["-", "0", "0"]
            assert rows[2][-5:] == ["feed,", "process", str(os.getpid()), "0", "0"]
            (shown,) = on("topic", "show", topic, "--json").lines
            assert [each["lent_to"] for each in shown["partitions"]] == ["", "feed"]
        (zero, one) = client.topic(topic).partitions
    assert (zero.lent_to, zero.lent_process, zero.borrowed, zero.recalled) == ("", 0, 0, 0)
    assert (one.lent_to, one.lent_process, one.recalled) == ("", 0, 1)
    assert on("topic", "show", topic).text.splitlines()[-1].split()[-3:] == ["-", "0", "1"]
