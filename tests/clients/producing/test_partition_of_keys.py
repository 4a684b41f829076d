"""One record by key goes where many do: the producer's short way chooses as the partitioner, which is normative."""

from __future__ import annotations

import random

from penstock.transport.partitioner import partition_of


def test_single_records_go_to_the_partition_of_their_key(penstock_client, seed):
    penstock_client.create_topic("t", partitions=7)
    core = penstock_client.producer("t")._core
    dice = random.Random(seed)
    keys = [b"", *(dice.randbytes(size) for size in range(1, 300))]
    assert [core._sender_of(key, None).partition for key in keys] == [partition_of(key, 7) for key in keys]
