"""What tasks.py measures is what it says."""

from __future__ import annotations

import penstock

from perf.benches import tasks
from perf.benches.tasks import FAR, LEASED, NEAR, ROUNDS, TaskBacklog
from perf.systems.broker import serve
from perf.systems.penstock import GROUP


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


class Meter:
    """A broker that takes a mebibyte more each time it is looked at."""

    def __init__(self) -> None:
        self.looked = 0

    def memory_mib(self) -> float:
        self.looked += 1
        return float(self.looked)


def test_memory_is_what_a_group_far_behind_adds(monkeypatch):
    warm = 2
    monkeypatch.setattr(tasks, "WARM", warm * LEASED)
    with penstock.connect("mem://") as client:
        client.create_topic("memory")
        assert tasks._behind_mib(Meter(), client, 60 * LEASED) == 1.0  # type: ignore[arg-type]
        queue = client.queue("memory", GROUP)
        assert queue.partitions[0].ready == (60 + warm - ROUNDS) * LEASED


def test_memory_is_shared_out_among_delayed_records():
    with penstock.connect("mem://") as client:
        client.create_topic("memory")
        assert tasks._delayed_bytes(Meter(), client, 200) == (1 << 20) / 200  # type: ignore[arg-type]
        client.set_queue("memory", GROUP)
        assert client.queue("memory", GROUP).partitions[0].delayed == 220
