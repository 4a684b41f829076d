"""Under which name and number a write is committed."""

from __future__ import annotations

import pytest
from penstock.spark.errors import UnknownQuery
from penstock.spark.sink.epochs import BATCH_ID, NAME_MAX, QUERY_ID, Epoch, batch_epoch, stream_epoch

QUERY = "5a3b8c52-6d0f-4c8e-9b1a-2f3f6b1d7e11"


def task(**properties: str):
    """What Spark tells a task: `query` and `batch`."""
    return {QUERY_ID: properties.get("query"), BATCH_ID: properties.get("batch")}.get


def test_a_batch_write_has_a_name_of_its_own():
    assert batch_epoch("", None, "5a3b") == Epoch("~5a3b", 1)


def test_a_batch_write_may_be_given_name_and_version():
    assert batch_epoch("nightly", 20261121, "5a3b") == Epoch("nightly", 20261121)


def test_a_query_commits_under_its_id_and_topic():
    assert stream_epoch("", "flights", task(query=QUERY, batch="7")) == Epoch(f"{QUERY}.flights", 7)


def test_a_query_whose_rows_name_their_topics_commits_under_its_id():
    assert stream_epoch("", "", task(query=QUERY, batch="0")) == Epoch(QUERY, 0)


def test_a_name_that_was_given_is_used():
    assert stream_epoch("delays", "flights", task(query=QUERY, batch="3")) == Epoch("delays", 3)
    assert stream_epoch("delays", "flights", task(batch="3")) == Epoch("delays", 3)


def test_long_topics_have_short_names_that_differ():
    names = [
        stream_epoch("", topic, task(query=QUERY, batch="1")).transaction for topic in ("t" * 199 + "a", "t" * 200)
    ]
    assert len(set(names)) == 2
    assert all(len(name) <= NAME_MAX for name in names)


@pytest.mark.parametrize(("transaction", "known"), [("", {}), ("", {"batch": "1"}), ("delays", {"query": QUERY})])
def test_a_task_that_knows_nothing_of_its_query_is_refused(transaction, known):
    with pytest.raises(UnknownQuery, match="txnVersion"):
        stream_epoch(transaction, "flights", task(**known))
