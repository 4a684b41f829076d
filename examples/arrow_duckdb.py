"""SQL over a topic: a table goes in as records, Arrow batches come out, and DuckDB reads them without a copy.

python examples/arrow_duckdb.py
"""

from __future__ import annotations

import duckdb
import penstock
import pyarrow as pa

TOPIC = "arrivals"


def main() -> None:
    flights = pa.table(
        {
            "key": pa.array([b"UA", b"AA", b"UA", b"DL"] * 1_000, pa.binary()),
            "value": pa.array([b"12", b"-3", b"45", b"0"] * 1_000, pa.binary()),
        }
    )
    with penstock.connect() as client:
        client.create_topic(TOPIC, if_missing=True)
        with client.producer(TOPIC) as producer:
            producer.send_many(flights)
        (end,) = client.offsets(TOPIC, "latest").values()
        batches = [batch.arrow(["key", "value"]) for batch in client.range(TOPIC, 0, end - flights.num_rows, end)]

    delays = """
        SELECT decode(key) AS carrier, count(*) AS flights, avg(CAST(decode(value) AS INT)) AS delay
        FROM arrivals GROUP BY carrier ORDER BY delay DESC
    """
    print(duckdb.from_arrow(pa.Table.from_batches(batches)).query("arrivals", delays))


if __name__ == "__main__":
    main()
