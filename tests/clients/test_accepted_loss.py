"""A loss that an operator accepted is passed by readers of every kind, each with one warning and no error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import penstock
import pytest
from penstock.broker import ServeConfig
from support.lossy import HEADER, VALUE, give_up, lossy, spoil
from support.processes import Serving

PATIENCE_S = 60.0


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings so far, which are told once."""
    found = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    caplog.clear()
    return found


@pytest.fixture(scope="module", params=[HEADER, VALUE])
def urls(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A directory, and a broker of another."""
    folder = tmp_path_factory.mktemp("lossy")
    lossy(folder / "alone", request.param)
    lossy(folder / "served", request.param)
    listen = f"unix://{folder}/broker.sock"
    with Serving(ServeConfig(data=f"{folder}/served", listen=(listen,))):
        yield {"file": f"file://{folder}/alone", "unix": listen}


@pytest.fixture(params=["file auto", "unix mapped", "unix push", "unix control"])
def client(request: pytest.FixtureRequest, urls: dict[str, str]) -> Iterator[Any]:
    """Of each kind, and for each way that records travel."""
    scheme, delivery = request.param.split()
    with penstock.connect(urls[scheme], delivery=delivery, timeout=PATIENCE_S) as found:
        yield found


def test_readers_of_every_kind_pass_it_and_warn_once(client: Any, caplog: pytest.LogCaptureFixture):
    with client.consumer("t") as consumer:
        found: list[Any] = []
        while not found or found[-1] != b"last":
            found += [record.value for record in consumer.fetch(wait=PATIENCE_S)]
        assert found == [b"before", b"behind", b"last"]
        assert consumer.position == {0: 4}
    (line,) = lines(caplog)
    assert line.startswith("records 1 to 1 of partition 0 of topic t are damaged (")
    assert [record.value for record in client.read("t", 0, 0)] == [b"before", b"behind", b"last"]
    assert len(lines(caplog)) == 1
    assert [record.value for record in client.read("t", 0, 1)] == [b"behind", b"last"]
    batches = [value for batch in client.range("t", 0, 0, 4) for value in batch.values()]
    assert batches == [b"before", b"behind", b"last"]
    assert len(lines(caplog)) == 2
    assert list(client.range("t", 0, 1, 2)) == []


@pytest.mark.parametrize("place", [HEADER, VALUE])
def test_a_log_passes_it(tmp_path: Path, place: int, caplog: pytest.LogCaptureFixture):
    with penstock.Log(tmp_path) as log:
        for value in (b"before", b"spoiled", b"behind"):
            log.append(value)
    spoil(tmp_path, b"spoiled", place)
    with penstock.Log(tmp_path) as log, pytest.raises(penstock.errors.Corrupt):
        list(log)
    give_up(tmp_path)
    with penstock.Log(tmp_path) as log:
        assert [record.value for record in log] == [b"before", b"behind"]
        (line,) = lines(caplog)
        assert "records 1 to 1 are lost, which was accepted; good records go on at offset 2" in line
        assert [record.value for record in log.read(0)] == [b"before", b"behind"]
        assert [record.value for record in log.read(1)] == [b"behind"]
        assert log.append(b"more") == 3


@pytest.mark.parametrize("place", [HEADER, VALUE])
def test_damage_beside_what_was_accepted_is_an_error(tmp_path: Path, place: int):
    with penstock.Log(tmp_path) as log:
        for value in (b"before", b"spoiled0", b"spoiled1", b"behind"):
            log.append(value)
    spoil(tmp_path, b"spoiled0", place)
    give_up(tmp_path)
    spoil(tmp_path, b"spoiled1", place)
    with penstock.Log(tmp_path) as log, pytest.raises(penstock.errors.Corrupt) as raised:
        log.read(1)
    assert not isinstance(raised.value, penstock.errors.AcceptedLoss)
    give_up(tmp_path)
    with penstock.Log(tmp_path) as log:
        assert [record.value for record in log] == [b"before", b"behind"]


def test_what_can_be_read_again_is_read_though_its_loss_was_accepted(tmp_path: Path):
    """The file may come back from a copy."""
    with penstock.Log(tmp_path) as log:
        for value in (b"before", b"spoiled", b"behind"):
            log.append(value)
    spoil(tmp_path, b"spoiled", VALUE)
    give_up(tmp_path)
    (path,) = tmp_path.glob("*.segment")
    data = path.read_bytes()
    flipped = bytes([b"spoiled"[0] ^ 1]) + b"poiled"
    path.write_bytes(data.replace(flipped, b"spoiled"))
    with penstock.Log(tmp_path) as log:
        assert [record.value for record in log] == [b"before", b"spoiled", b"behind"]
