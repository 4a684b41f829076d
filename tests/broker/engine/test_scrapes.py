"""A scrape of metrics delays no client: the broker works it off in steps, and serves others between them.

`test_turns.py` bounds each step.
"""

from __future__ import annotations

from penstock.storage.batch import encode
from penstock.transport import messages as m
from support.engine import Rig

TOPICS = 400


def test_clients_are_answered_in_the_turn_they_ask_in_while_a_scrape_is_worked_off():
    rig = Rig()
    for number in range(TOPICS):
        topic = rig.topic(f"t{number}")
        rig.join(topic, "g", "m")
        rig.ask(m.SetQueue, topic, "q", {})
    scrape = [rig.next_request() for _ in range(4)]
    asked = (
        m.Stats(scrape[0]),
        m.ListTopics(scrape[1], []),
        m.ListGroups(scrape[2], b""),
        m.ListQueues(scrape[3], b""),
    )
    for message in asked:
        rig.send(message, peer="exporter")
    turns = 0
    while not all(map(rig.answers, scrape)):
        produce = rig.next_request()
        rig.send(m.Produce(produce, topic, 0), bytes(encode([b"x"])), peer="client")
        rig.turn(1)
        assert [type(answer) for answer in rig.answers(produce)] == [m.Produced], turns
        turns += 1
    assert turns > 10, "it was worked off at once, so this test shows nothing"
