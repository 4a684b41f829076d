"""Orders in, totals out: each order is counted once, although the program may die and be started again at any moment.

    python examples/pipeline.py

The totals and how far they go are committed together: the epoch of the transaction is the offset behind the last order.
A run that died between that commit and moving its cursor gets the same orders again, and leaves out what was counted.
Run one at a time: docs/transactions.md says why.
"""

from __future__ import annotations

import json

import penstock


def main() -> None:
    with penstock.connect() as client:
        for topic in ("orders-in", "totals-out"):
            client.create_topic(topic, if_missing=True)
        with client.producer("orders-in") as producer:
            producer.send_many([json.dumps({"cents": cents}).encode() for cents in (100, 250, 75)])
        total(client)


def total(client: penstock.Client) -> None:
    """Read what the group has not read, and publish one total for it."""
    with client.consumer("orders-in", group="totals", start="earliest") as consumer:
        counted = client.transaction_epoch("totals") or 0
        while orders := consumer.fetch(max_records=500, wait=1.0):
            if fresh := [order for order in orders if order.offset >= counted]:
                counted = fresh[-1].offset + 1
                cents = sum(json.loads(order.value)["cents"] for order in fresh)
                with client.transaction(id="totals", epoch=counted) as transaction:
                    message = json.dumps({"orders": len(fresh), "cents": cents}).encode()
                    transaction.producer("totals-out").send(message)
            consumer.commit()
    print([record.value.decode() for record in client.read("totals-out", 0, 0)])


if __name__ == "__main__":
    main()
