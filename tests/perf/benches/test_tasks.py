"""What tasks.py measures is what it says."""

from __future__ import annotations

import penstock

from perf.benches import tasks
from perf.benches.tasks import FAR, LEASED, NEAR, ROUNDS, TaskBacklog
from perf.lab.harness import Lab
from perf.systems.broker import serve


def test_a_backlog_has_the_size_that_was_asked_for_and_every_group_begins_at_its_first_record(tmp_path):
    with serve(tmp_path) as broker, penstock.connect(broker.url) as client:
        for topic in (NEAR, FAR):
            client.create_topic(topic, commit="written")
        tasks._send(client, NEAR, ROUNDS * LEASED)
        backlog = TaskBacklog(client)
        for size in (LEASED, 3 * LEASED):
            assert all(backlog.figure(what, size) > 0 for what in backlog.measures)
            assert client.offsets(FAR, "latest") == {0: size}
        assert backlog.grown_to(2 * LEASED).round_us(FAR) > 0
        assert backlog.round_us(NEAR) > 0
        assert client.offsets(FAR, "latest") == {0: 3 * LEASED}


def test_memory_is_that_of_one_broker_each(tmp_path):
    lab = Lab(tmp_path, 1, 0.001)
    behind, delayed = tasks._memory(lab)
    assert isinstance(behind.measure(), float)
    assert delayed.measure() != 0.0
    assert not list(tmp_path.iterdir())
