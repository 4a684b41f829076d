"""Threads that share a producer while transactions begin and end under them."""

from __future__ import annotations

import threading

VALUES = [b"%06d" % number for number in range(4000)]


def test_sends_of_any_thread_are_staged_within_the_block(penstock_client):
    penstock_client.create_topic("t")
    with penstock_client.producer("t") as producer, penstock_client.consumer("t") as consumer:
        with producer.transaction():
            thread = threading.Thread(target=producer.send_many, args=(VALUES,))
            thread.start()
            thread.join(60)
            assert consumer.fetch(1, wait=0) == []
        assert len(penstock_client.read("t", 0, 0, max_records=10_000)) == len(VALUES)


def test_a_thread_that_sends_all_the_time_loses_nothing_when_transactions_end(penstock_client):
    penstock_client.create_topic("t", partitions=2)
    with penstock_client.producer("t", window_bytes="1MB") as producer:
        futures = []
        sending = threading.Thread(target=lambda: futures.extend(map(producer.send_nowait, VALUES)))
        waiting = threading.Thread(target=lambda: [producer.send(b"w" + value) for value in VALUES[:300]])
        sending.start()
        waiting.start()
        blocks = 0
        while sending.is_alive() or waiting.is_alive():
            with producer.transaction():
                producer.send(b"of the block %d" % blocks)
            blocks += 1
        producer.flush()
        assert len(futures) == len(VALUES)
        assert all(future.exception() is None for future in futures)
    found = [record.value for part in range(2) for record in penstock_client.read("t", part, 0, max_records=10_000)]
    assert sorted(found) == sorted(
        [*VALUES, *(b"w" + value for value in VALUES[:300]), *(b"of the block %d" % block for block in range(blocks))]
    )


def test_a_transaction_may_be_shared_by_threads(penstock_client):
    penstock_client.create_topic("t", partitions=4)
    with penstock_client.transaction() as transaction:
        threads = [
            threading.Thread(target=lambda: transaction.producer("t").send_many(VALUES, keys=VALUES)) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    found = [record.value for part in range(4) for record in penstock_client.read("t", part, 0, max_records=10_000)]
    assert sorted(found) == sorted(4 * VALUES)
