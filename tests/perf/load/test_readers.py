"""Groups that read together, in processes of their own."""

from __future__ import annotations

import penstock
import pytest

from perf.load import readers
from perf.systems.broker import serve


@pytest.mark.parametrize("delivery", ["push", "mapped"])
def test_every_group_reads_everything_and_may_not_find_less(delivery, tmp_path, capfd):
    with serve(tmp_path) as broker, penstock.connect(broker.url) as client:
        client.create_topic("read")
        with client.producer("read") as producer:
            producer.send_many([b"value"] * 1000)
        assert readers.together_records_per_s(broker.url, "read", delivery, ["a", "b"], 1000) > 0
        with pytest.raises(RuntimeError, match="ended early"):
            readers.together_records_per_s(broker.url, "no-such-topic", delivery, ["a"], 1)
    assert "no-such-topic" in capfd.readouterr().err
