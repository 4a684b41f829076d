"""Results of tasks on a real disk: a broker that was killed finds them again, and so does an embedded node."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import penstock
from penstock.broker import ServeConfig
from support.processes import Serving

TASKS = 40


def test_what_became_of_tasks_is_known_after_the_broker_was_killed(tmp_path: Path):
    config = ServeConfig(data=str(tmp_path / "data"), listen=(f"unix://{tmp_path}/s",), restart_most_s=0.2)
    with Serving(config) as serving, penstock.connect(serving.url) as client:
        client.create_topic("t")
        with client.producer("t") as producer:
            sent = [producer.send(b"%d" % number) for number in range(TASKS)]
        with client.worker("t", group="g") as worker:
            for task in worker.fetch(TASKS // 2):
                task.ack(b"result of " + task.value)
            for task in worker.fetch(TASKS // 2):
                task.reject("not today")
        client.cancel_task("t-0-39", "g")
        ready = serving.ready
        os.kill(serving.pid("broker"), signal.SIGKILL)
        serving.wait_ready(other_than=ready)
        known = [client.task(f"t-0-{number}", "g") for number in range(len(sent))]
        assert [each.result for each in known[: TASKS // 2]] == [b"result of %d" % n for n in range(TASKS // 2)]
        assert {each.state for each in known[: TASKS // 2]} == {"completed"}
        assert [each.reason for each in known[TASKS // 2 :]] == ["not today"] * (TASKS // 2)
        assert list((tmp_path / "data").rglob("finals-*"))


def test_an_embedded_node_finds_them_when_it_is_opened_again(tmp_path: Path):
    for turn in range(2):
        with penstock.connect(f"file://{tmp_path}/data") as client:
            if not turn:
                client.create_topic("t")
                with client.producer("t") as producer, client.worker("t", group="g") as worker:
                    producer.send(b"value")
                    (task,) = worker.fetch(1)
                    task.ack(b"result")
            assert client.task("t-0-0", "g").result == b"result"
