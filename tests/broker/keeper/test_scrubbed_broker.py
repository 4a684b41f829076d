"""A real broker whose old bytes rot: its keeper notices though no client reads them, and stats and log say so."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.broker.config import KeeperOptions, ServeConfig
from penstock.storage.layout import DATA_START
from support.processes import Serving, until


def test_what_rots_in_a_closed_segment_is_told_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    config = ServeConfig(data=str(data), keeper=KeeperOptions(scrub_s=0.2, scrub_most=64 << 20))
    with Serving(config) as serving, penstock.connect(serving.url) as client:
        client.create_topic("t", partitions=1, segment_bytes=64 << 10)
        client.producer("t").send_many([b"x" * 1000] * 500)
        oldest = min(data.glob("topics/*/0/*.segment"))
        with oldest.open("r+b") as file:
            file.seek(DATA_START + 2000)
            file.write(b"rot")
        assert until(lambda: client.stats()["scrub.rotten"] == 1, serving)
        assert until(lambda: "does not verify" in serving.errors(), serving)
        assert oldest.name in serving.errors()
        client.producer("t").send(b"and it goes on")
        assert serving.errors().count("does not verify") == 1
