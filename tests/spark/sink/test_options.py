"""What a write may be told, and what does not go together."""

from __future__ import annotations

import pytest
from penstock.spark.errors import InvalidOption
from penstock.spark.options import describe
from penstock.spark.sink.options import SinkOptions, sink_options
from support.sources import ROOT

WRITING = (ROOT / "docs/spark.md").read_text().partition("\n## Writing")[2].partition("\n## ")[0]


def test_exactly_once_is_what_one_gets():
    assert sink_options({}, streaming=True) == SinkOptions(delivery="exactly-once", topic="", codec=None)


def test_options_are_read_whatever_their_case():
    given = {"TOPIC": "flights", "txnid": "nightly", "TxnVersion": "7", "committimeout": "2m", "codec": "zstd"}
    assert sink_options(given, streaming=False) == SinkOptions(
        topic="flights", transaction="nightly", version=7, commit_timeout_s=120.0, codec="zstd"
    )


def test_the_name_that_delta_has_for_it_is_taken():
    assert sink_options({"txnAppId": "nightly", "txnVersion": "0"}, streaming=False).transaction == "nightly"


def test_what_spark_adds_by_itself_is_not_unknown():
    sink_options({"checkpointLocation": "/somewhere", "queryName": "delays"}, streaming=True)


@pytest.mark.parametrize(
    ("streaming", "given", "says"),
    [
        (False, {"txnId": "nightly"}, "txnId and txnVersion go together"),
        (False, {"txnVersion": "7"}, "txnId and txnVersion go together"),
        (True, {"txnId": "delays", "txnVersion": "7"}, "Spark itself numbers"),
        (False, {"txnId": "nightly", "txnVersion": "-1"}, "txnVersion='-1' cannot be used: it is a whole number"),
        (True, {"txnId": "~delays"}, "soon forgotten"),
        (True, {"delivery": "at-least-once", "txnId": "delays"}, "mean nothing with delivery"),
        (True, {"delivery": "twice"}, "exactly-once, at-least-once"),
        (True, {"codec": "brotli"}, "none, lz4, zstd"),
        (True, {"topik": "flights"}, "did you mean topic?"),
        (True, {"subscribe": "flights"}, "option subscribe is unknown"),
        (True, {"commitTimeout": "soon"}, "commitTimeout='soon' cannot be used"),
    ],
)
def test_an_option_that_cannot_be_is_refused(streaming, given, says):
    with pytest.raises(InvalidOption) as refused:
        sink_options(given, streaming=streaming)
    assert says in refused.value.message


@pytest.mark.parametrize("option", describe(SinkOptions), ids=lambda option: option.name)
def test_the_manual_has_every_option_with_its_default(option):
    rows = [line.split("|")[1:3] for line in WRITING.splitlines() if line.startswith("|")]
    assert [f" `{option.name}` ", f" {option.default} ".replace("  ", " ")] in rows
