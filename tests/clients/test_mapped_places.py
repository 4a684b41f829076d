"""Places for mapped readers at a real broker: as many as it was told, given back by readers that end or are killed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.broker.errors import LimitReached
from penstock.clients import connect
from penstock.storage.board import Board
from penstock.storage.errors import Error
from support.processes import Serving

VALUES = [b"%06d" % number for number in range(10)]
PATIENCE_S = 60.0

READER = """
import sys
from penstock.clients import connect
with connect(sys.argv[1]) as client, client.consumer("t", delivery="mapped", session_timeout=1.0) as consumer:
    print(consumer.delivery, flush=True)
    consumer.fetch(wait=60.0)
    consumer.fetch(wait=60.0)
"""


@pytest.fixture
def config(tmp_path: Path) -> ServeConfig:
    return ServeConfig(data=str(tmp_path / "data"), mapped_readers=2, board_rows=64)


def test_readers_without_a_place_are_pushed_to_or_refused_and_the_broker_stays(config: ServeConfig):
    with Serving(config) as serving, connect(serving.url, timeout=PATIENCE_S) as client:
        client.create_topic("t", commit="written")
        consumers = [client.consumer("t", start="latest") for _ in range(4)]
        for _ in range(2):
            assert [consumer.delivery == "mapped" for consumer in consumers] == [True, True, False, False]
            with pytest.raises(LimitReached, match=r"all 2 places .* mapped_readers"):
                client.consumer("t", delivery="mapped")
            client.producer("t").send_many(VALUES)
            for consumer in consumers:
                assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == VALUES
            serving.kill_broker()  # and the readers join again
        consumers.pop(0).close()
        consumers.append(client.consumer("t", delivery="mapped"))
        broker = serving.pid("broker")
        for consumer in consumers:
            consumer.close()
        assert not serving.watch(0.0) or serving.pid("broker") == broker
        assert "Traceback" not in serving.errors()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_the_place_of_a_reader_that_died_or_stopped_is_another_s_when_its_session_is_over(
    config: ServeConfig, end: signal.Signals
):
    with Serving(config) as serving, connect(serving.url, timeout=PATIENCE_S) as client:
        client.create_topic("t", commit="written")
        command = [sys.executable, "-c", READER, serving.url]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE) as reader,
            client.consumer("t", delivery="mapped") as beside,
        ):
            assert reader.stdout is not None
            assert reader.stdout.readline() == b"mapped\n"
            reader.send_signal(end)
            beside.fetch(wait=1.0)
            after = None
            while after is None:
                try:
                    after = client.consumer("t", delivery="mapped")
                except LimitReached:
                    beside.fetch(wait=0.1)
            with after:
                client.producer("t").send_many(VALUES)
                for consumer in (beside, after):
                    assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == VALUES
            reader.kill()
        assert "Traceback" not in serving.errors()


def test_a_forked_child_leaves_the_slot_of_its_parent_alone(config: ServeConfig):
    with Serving(config) as serving, connect(serving.url, timeout=PATIENCE_S) as client:
        client.create_topic("t", commit="written")
        consumer = client.consumer("t", delivery="mapped")
        assert list(consumer.fetch(wait=0.01)) == []
        board = Board.attach(client._connection.welcome.board, write=True)
        assert board.slot(0).is_raised, "from its wait, which only time has ended"
        child = os.fork()
        if not child:
            try:
                with pytest.raises(Error, match="in the child"):
                    consumer.fetch(wait=1.0)
                consumer.close()
                client.close()
                del consumer, client
                gc.collect()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert board.slot(0).is_raised
        client.producer("t").send_many(VALUES)
        assert [record.value for record in consumer.fetch(wait=PATIENCE_S)] == VALUES
        consumer.close()
