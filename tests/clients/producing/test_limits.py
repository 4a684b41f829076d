"""Limits of batches: records that are each within the limits are cut so that their batches are, too."""

from __future__ import annotations

import pytest
from penstock.broker.engine.producing import judging
from penstock.clients.embedded.local import LocalChannel
from penstock.clients.producing.pieces import HEADERS_BYTES_MAX, OVERHEAD_BYTES, Shape, extras_bytes
from penstock.storage.encoding import pack_headers
from penstock.storage.errors import RecordTooLarge
from penstock.transport.messages import Produced
from penstock.transport.producer_session import TARGET_BYTES

SHAPE = Shape(1, 0, 16 << 20, "t")


def gathered(penstock_client, producer, monkeypatch, send) -> list:
    """Futures of what is sent behind a record whose answer comes late: it gathers."""
    put, held = LocalChannel.put, []
    with monkeypatch.context() as holding:
        holding.setattr(LocalChannel, "put", lambda channel, *answer: bool(held.append((channel, *answer))) or True)
        futures = [producer.send_nowait(b"first")]
        penstock_client._connection.turn()
        futures += send()
    for channel, *answer in held:
        assert isinstance(answer[0], Produced), answer[0]
        put(channel, *answer)
    return futures


@pytest.mark.parametrize(
    ("what", "count"),
    [
        ({"headers": {"h": bytes(50_000)}}, 100),
        ({"headers": {f"{number}": b"" for number in range(1000)}}, 100),
        ({"key": bytes(400_000)}, 12),
    ],
    ids=["headers", "entries", "keys"],
)
def test_records_that_gather_go_in_batches_within_all_limits(penstock_client, monkeypatch, what, count):
    penstock_client.create_topic("t")
    producer = penstock_client.producer("t", window_bytes=64 << 20)
    sender = producer._core.senders[0]

    def send():
        with producer._driver.lock:  # the pump has no chance
            return [producer.send_nowait(b"v", **what) for _ in range(count)]

    futures = gathered(penstock_client, producer, monkeypatch, send)
    assert all(each.count <= TARGET_BYTES // 8000 + 1 for each in sender.session.in_flight)
    producer.flush()
    assert [future.result() for future in futures] == list(range(count + 1))
    producer.close()


def test_a_dedup_key_counts_as_bytes_of_its_record(penstock_client):
    penstock_client.create_topic("t")
    with penstock_client.producer("t") as producer, producer._driver.lock:
        core, sender = producer._core, producer._core.senders[0]
        sender.trigger = 1 << 60
        core.append(b"v", b"kk", None, None, None, core.as_task(None, None, None, b"d" * 500))
        assert sender.gather.size == 1 + 2 + 500 + OVERHEAD_BYTES
        sender.trigger = 0


@pytest.mark.parametrize("verb", ["send", "send_nowait"])
def test_a_record_whose_key_or_headers_are_too_large_is_refused_alone(penstock_client, verb):
    penstock_client.create_topic("t", max_record_bytes=1000)
    with penstock_client.producer("t") as producer:
        before = producer.send_nowait(b"before")
        with pytest.raises(RecordTooLarge, match="a key of 1001 bytes is over max_record_bytes=1000 of topic t"):
            getattr(producer, verb)(b"v", key=bytes(1001))
        with pytest.raises(RecordTooLarge, match="headers of 1006 bytes is over max_record_bytes=1000 of topic t"):
            getattr(producer, verb)(b"v", headers={"h": bytes(1000)})
        assert (before.result(), producer.send(b"v", key=bytes(1000), headers={"h": bytes(994)})) == (0, 1)


def test_headers_of_one_record_leave_room_for_those_gathered_before_it():
    assert HEADERS_BYTES_MAX + 2 * TARGET_BYTES <= judging.HEADERS_BYTES_MAX
    fitting = {"h": bytes(HEADERS_BYTES_MAX - 8)}
    assert len(pack_headers(fitting)) == HEADERS_BYTES_MAX
    assert extras_bytes(None, fitting, SHAPE) == HEADERS_BYTES_MAX
    with pytest.raises(RecordTooLarge, match=f"headers of {HEADERS_BYTES_MAX + 1} bytes is over {HEADERS_BYTES_MAX}"):
        extras_bytes(None, {"hh": bytes(HEADERS_BYTES_MAX - 8)}, SHAPE)


def test_names_of_headers_count_as_they_are_written():
    name = "\N{GRINNING FACE}" * 255  # 4 bytes each
    with pytest.raises(RecordTooLarge, match="headers of"):
        extras_bytes(None, {name: b""}, Shape(1, 0, 1000, "t"))
