"""`penstock sql`: rows of a query, for people and as JSON lines."""

from __future__ import annotations

from pathlib import Path

import penstock
import pytest
from penstock.cli import exits
from penstock.cli.sql import ROWS_SHOWN

from ..conftest import Cli

pytest.importorskip("duckdb", reason="SQL runs in DuckDB")


def test_rows_are_a_table_or_json_lines_and_long_ones_are_cut_for_people(cli: Cli, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'data'}"
    with penstock.connect(url) as client:
        client.create_topic("flights")
        count = ROWS_SHOWN + 2
        client.producer("flights").send_many([b"%d" % n for n in range(count)], keys=[b"UA"] * count)
    query = "select key, count(*) n, null nothing, max(timestamp) > now() later from flights group by key"
    found = cli("sql", query, "--url", url)
    assert found.text.split() == ["key", "n", "nothing", "later", "UA", f"{count:,}", "no"]
    (row,) = cli("sql", query, "--url", url, "--json").lines
    assert row == {"key": "UA", "n": count, "nothing": None, "later": False}
    every = cli("sql", 'select "offset" from flights', "--url", url)
    assert len(every.text.split()) == ROWS_SHOWN + 1
    assert "2 more rows" in every.err
    assert len(cli("sql", 'select "offset" from flights', "--url", url, "--json").lines) == count
    assert cli("sql", "select * from flights limit 0", "--url", url).text.strip() == "no rows"
    refused = cli("sql", "selec", "--url", url)
    assert refused.code != exits.OK
    assert "syntax error" in refused.err
