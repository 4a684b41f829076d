"""Full spools, by bytes and by age: what is refused, what is dropped, and what never is."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
from penstock import Spool
from penstock.clients.errors import SpoolFull, TimedOut
from penstock.clients.spooling import spooled
from penstock.clients.spooling.forwarding import Forwarder
from penstock.clients.spooling.spool import BATCH_BYTES, RECORD_BYTES
from penstock.storage import rolling_logs
from penstock.storage.errors import BatchTooLarge, RecordTooLarge
from penstock.storage.files import Files
from support.spools import forward_all, stands


def test_a_full_spool_refuses(penstock_client, tmp_path):
    penstock_client.create_topic("t")
    with Spool(tmp_path / "s", max_bytes=16_000) as spool:
        for _ in range(10):
            spool.send("t", bytes(950))
        with pytest.raises(SpoolFull, match="of 16000 bytes: forward it"):
            spool.send("t", bytes(950))
        forward_all(tmp_path / "s", penstock_client)
        spool.send("t", bytes(950))
        assert (spool.status().waiting, spool.status().dropped) == (1, 0)
    with Spool(tmp_path / "s", max_bytes=10_000) as spool:
        assert 950 <= spool.status().bytes <= 3000


def test_a_full_spool_drops_the_oldest_if_it_is_told_to(penstock_client, tmp_path, caplog):
    penstock_client.create_topic("t")
    with Spool(tmp_path / "s", max_bytes=16_000, when_full="drop_oldest") as spool:
        values = [b"%03d" % number + bytes(950) for number in range(30)]
        for value in values:
            spool.send("t", value)
        status = spool.status()
        assert status.bytes <= 16_000
        assert status.waiting + status.dropped == 30
        assert status.waiting >= 8
        assert "is full: dropped" in caplog.text
        forward_all(tmp_path / "s", penstock_client)
    assert stands(penstock_client, "t") == values[status.dropped :]


@pytest.mark.parametrize("when_full", ["refuse", "drop_oldest"])
def test_what_can_never_fit_is_refused_and_drops_nothing(tmp_path, when_full):
    with Spool(tmp_path / "s", max_bytes=10_000, when_full=when_full) as spool:
        spool.send_many("t", [bytes(100)] * 50)
        before = spool.status()
        with pytest.raises(RecordTooLarge, match=r"a record of 1\d{4} bytes is over max_bytes=10000 of the spool"):
            spool.send("t", bytes(10_001))
        with pytest.raises(RecordTooLarge):
            spool.send("t", bytes(9_999), key=b"k", headers={"h": b"1"})
        with pytest.raises(BatchTooLarge, match=r"11 records of 1\d{4} bytes are over max_bytes=10000 of the spool"):
            spool.send_many("t", [bytes(910)] * 11)
        assert spool.status() == before
        assert (before.waiting, before.dropped) == (50, 0)


def test_what_just_fits_is_taken(tmp_path):
    with Spool(tmp_path / "s", max_bytes=10_000) as spool:
        beside = BATCH_BYTES + RECORD_BYTES + len(spooled.packed(spooled.Envelope("t", None, None, None)))
        with pytest.raises(RecordTooLarge):
            spool.send("t", bytes(10_001 - beside))
        spool.send("t", bytes(10_000 - beside))
        assert spool.status().waiting == 1


def test_a_spool_counts_what_is_on_disk_and_the_same_when_it_is_opened_again(tmp_path):
    for when_full in ("refuse", "drop_oldest"):
        with Spool(tmp_path / "s", max_bytes=100_000, when_full=when_full) as spool:
            for _ in range(50):
                spool.send("t", b"tiny")
            before = spool.status()
        with Spool(tmp_path / "s", max_bytes=100_000, when_full=when_full) as spool:
            assert spool.status() == before
            on_disk = sum(log.size(number) for log in [spool._logs] for number in log.known)
            assert before.bytes == on_disk > before.waiting * 200


def test_flush_does_not_wait_for_what_was_dropped(tmp_path):
    with Spool(tmp_path / "s") as spool:
        spool.send("t", b"1")
        assert spool._drop_oldest()
        spool.flush(timeout=5)
        spool.send("t", b"2")
        with pytest.raises(TimedOut):
            spool.flush(timeout=0)


@pytest.mark.parametrize("when_full", ["refuse", "drop_oldest"])
def test_records_that_were_forwarded_take_no_room(penstock_client, tmp_path, when_full):
    penstock_client.create_topic("t")
    with Spool(tmp_path / "s", max_bytes=10_000, when_full=when_full) as spool:
        for size in (9_000, 100, 9_400, 300, 9_450):
            spool.send("t", bytes(size))
            forward_all(tmp_path / "s", penstock_client)
        assert (spool.status().waiting, spool.status().dropped) == (0, 0)
    assert [len(value) for value in stands(penstock_client, "t")] == [9_000, 100, 9_400, 300, 9_450]


def test_keys_and_headers_fill_a_log_as_values_do(tmp_path):
    with Spool(tmp_path / "s", max_bytes=24_000, when_full="drop_oldest") as spool:
        for _ in range(16):
            spool.send("t", None, key=bytes(500), headers={"h": bytes(500)})
        assert spool.status().dropped <= 3
        assert len(list((tmp_path / "s/records").glob("0*"))) >= 13


def test_a_log_has_records_of_a_part_of_the_age_so_that_young_ones_are_not_dropped_with_it(tmp_path, monkeypatch):
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep)
    monkeypatch.setattr(rolling_logs, "time", clock)
    with Spool(tmp_path / "s", max_age=160, when_full="drop_oldest") as spool:
        for at, logs in [(0, 1), (10, 1), (10.5, 2), (20.5, 2), (150, 3)]:
            now[0] = at
            spool.send("t", b"v")
            assert len(list((tmp_path / "s/records").glob("0*"))) == logs
        assert spool._drop_oldest()
        assert (spool.status().waiting, spool.status().dropped) == (3, 2)


def test_a_log_that_a_forwarder_removes_first_makes_room_as_well(tmp_path, monkeypatch):
    with Spool(tmp_path / "s", max_bytes=2_000, when_full="drop_oldest") as spool:
        spool.send("t", bytes(900))
        remove = rolling_logs.RollingLogs.remove

        def too_late(logs: Any, number: int, unneeded: Any) -> bool:
            remove(logs, number, unneeded)
            return False

        monkeypatch.setattr(rolling_logs.RollingLogs, "remove", too_late)
        spool.send("t", bytes(900))
        assert (spool.status().waiting, spool.status().dropped) == (1, 0)


def test_a_begun_chunk_of_which_records_were_dropped_goes_on_behind_it(penstock_client, tmp_path, monkeypatch):
    penstock_client.create_topic("t")
    monkeypatch.setattr(rolling_logs, "FULL_RECORDS", 2)
    with Spool(tmp_path / "s") as spool:
        for number in range(6):
            spool.send("t", b"%d" % number)
        places = sorted(place for place, _ in _news(tmp_path))
        with Forwarder(str(tmp_path / "s")) as died:
            died._save(spooled.SpoolProgress(died._progress.name, 0, places[1]))
        spool._drop_oldest()
        spool._drop_oldest()
        spool._drop_oldest()
        forward_all(tmp_path / "s", penstock_client)
    assert stands(penstock_client, "t") == [b"3", b"4", b"5"]


def _news(tmp_path):
    logs = rolling_logs.RollingLogs(spooled.records_path(f"{tmp_path}/s"), Files(), "durable")
    logs.look()
    found = list(logs.news())
    logs.close()
    return found


@pytest.mark.parametrize("when_full", ["refuse", "drop_oldest"])
def test_records_wait_for_no_longer_than_max_age(penstock_client, tmp_path, monkeypatch, when_full):
    from penstock.clients.spooling import spool as module

    with Spool(tmp_path / "s", max_age=60, when_full=when_full) as spool:
        spool.send("t", b"0")
        spool.send("t", b"1")
        now = module.time.time() + 61
        monkeypatch.setattr(module.time, "time", lambda: now)
        spool._oldest_at = -10.0
        if when_full == "refuse":
            with pytest.raises(SpoolFull, match="older than max_age=60 s"):
                spool.send("t", b"2")
        else:
            spool.send("t", b"2")
            assert (spool.status().waiting, spool.status().dropped) == (1, 2)
