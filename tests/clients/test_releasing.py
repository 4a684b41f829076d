"""Tasks that are released with a delay, through clients of every kind."""

from __future__ import annotations

WAIT = 30.0


def leased(client, topic, worker):
    """The one task of a new topic."""
    with client.producer(topic) as producer:
        producer.send(b"x")
    (task,) = worker.fetch(1, wait=WAIT)
    return task


def test_a_released_task_is_delivered_when_its_delay_is_over_and_not_before(dial, penstock_broker, topic):
    client = dial(penstock_broker.url)
    client.create_topic(topic)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        leased(client, topic, worker).release(delay=3600)
        penstock_broker.advance(3599.75)
        assert worker.fetch(1, wait=0.0) == []
        penstock_broker.advance(0.25)
        (again,) = worker.fetch(1, wait=0.0)
        assert (again.value, again.attempt) == (b"x", 1)


def test_a_task_released_with_a_delay_may_be_claimed_by_force_and_its_attempt_does_not_count(client, topic):
    client.create_topic(topic)
    with client.worker(topic, group="jobs", prefetch=0) as worker:
        task = leased(client, topic, worker)
        task.release(delay=3600)
        found = client.task(task.id, "jobs")
        assert (found.state, found.history) == ("retrying", [])
        assert abs(found.time.timestamp() - client.now_us / 1e6 - 3600) < WAIT
        assert worker.fetch(1, wait=0.0) == worker.claim([task.id]) == []
        (again,) = worker.claim([task.id], force=True)
        assert again.attempt == 1
        again.release()
        assert worker.fetch(1, wait=WAIT)[0].attempt == 1
