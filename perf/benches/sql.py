"""Queries over a topic by `client.sql`, beside DuckDB over a Parquet copy of the same rows, and over them in memory.

Parquet has a dictionary of what repeats and the number of rows, so what counts rows or groups by few keys is decided
there. In memory stand the same Arrow columns: what DuckDB takes for them is the least that a reader of a log can take.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import penstock

from ..lab.harness import Lab
from ..lab.rows import Row
from ..systems.broker import serve

PARQUET, MEMORY = "DuckDB on Parquet", "DuckDB on Arrow in memory"
RECORDS = 3_000_000
BATCH = 10_000
KEYS = 16
OFFSETS = 0.05
"""The last part of the offsets, of a query for what is new."""

QUERIES = {
    "count": "select count(*) from {}",
    "count by key": "select key, count(*) from {} group by key",
    "largest value by key": "select key, max(value) from {} group by key",
    "largest value of the last 5 %": 'select max(value) from {} where "offset" >= FIRST',
}


def rows(lab: Lab) -> Iterator[Row]:
    import duckdb
    import pyarrow.parquet as pq

    count = lab.count(RECORDS, least=BATCH)
    with lab.place() as place, serve(place) as broker, penstock.connect(broker.url) as client:
        client.create_topic("rows", commit="written")
        _fill(client, count)
        copy = place / "rows.parquet"
        held = client.sql('select key, value, "offset" from rows')
        pq.write_table(held, copy)
        with duckdb.connect() as database:
            database.register("held", held)
            for name, query in QUERIES.items():
                text = query.replace("FIRST", str(round(count * (1 - OFFSETS))))
                yield Row(
                    f"sql: {name}", "records/s", partial(_ours, client, text, count),
                    limits={
                        PARQUET: partial(_theirs, database, text, _path(copy), count),
                        MEMORY: partial(_theirs, database, text, "held", count),
                    },
                    ratio_goals={PARQUET: 0.7}, note=f"{count:,} records of 100 B with {KEYS} keys",
                )  # fmt: skip


def _fill(client: penstock.Client, count: int) -> None:
    keys = [b"key-%02d" % (number % KEYS) for number in range(BATCH)]
    with client.producer("rows") as producer:
        for first in range(0, count, BATCH):
            values = [b"%09d" % (number * 7919 % count) + bytes(91) for number in range(first, first + BATCH)]
            producer.send_many(values, keys=keys)


def _path(copy: Path) -> str:
    return f"'{copy}'"


def _ours(client: penstock.Client, text: str, count: int) -> float:
    begun = time.perf_counter()
    client.sql(text.format("rows"))
    return count / (time.perf_counter() - begun)


def _theirs(database: Any, text: str, table: str, count: int) -> float:
    begun = time.perf_counter()
    database.sql(text.format(table)).to_arrow_table()
    return count / (time.perf_counter() - begun)
