"""Queues with a rate, through clients of every kind."""

from __future__ import annotations


def test_a_queue_with_a_rate_gives_no_more_and_says_so(client, topic):
    client.create_topic(topic, partitions=2)
    settings = client.set_queue(topic, "jobs", rate="2/h", rate_burst=3).settings
    assert (settings["rate"], settings["rate_burst"]) == ("2/h", 3)
    with client.producer(topic) as producer:
        producer.send_many([b"x"] * 20)
    with client.worker(topic, group="jobs") as worker:
        tasks = []
        while len(tasks) < 3:
            tasks += worker.fetch(max_records=10, wait=5)
        assert len(tasks) == 3
        worker.ack(tasks)
        assert worker.fetch(max_records=10, wait=0) == []
        client.set_queue(topic, "jobs", rate=None)
        assert worker.fetch(max_records=10, wait=20)
