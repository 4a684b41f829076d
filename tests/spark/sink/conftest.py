"""Lines of text, and a query that writes them to a topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.lines import Lines, Query


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    """Text files for a query to read."""
    return Lines(tmp_path / "lines")


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic(partitions=2)


@pytest.fixture
def query(spark: SparkSession, lines: Lines, url: str, topic: str, tmp_path: Path) -> Query:
    """From the lines to the topic."""
    return Query(spark, lines, tmp_path / "checkpoint", url=url, topic=topic)
