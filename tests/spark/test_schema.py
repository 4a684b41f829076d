"""The columns: their types, which are asked for, and what of a batch they need."""

from __future__ import annotations

import pytest
from penstock.spark.errors import InvalidColumns
from penstock.spark.schema import TYPES, check, declared, needed
from penstock.spark.source_options import SourceOptions


def test_without_options_there_are_the_columns_of_kafka():
    assert declared(SourceOptions()) == (
        "`key` binary, `value` binary, `topic` string NOT NULL, `partition` int NOT NULL, "
        "`offset` bigint NOT NULL, `timestamp` timestamp NOT NULL, `timestampType` int NOT NULL"
    )
    assert declared(SourceOptions(include_headers=True)).endswith(
        ", `timestampType` int NOT NULL, `headers` array<struct<key:string,value:binary>>"
    )


def test_columns_may_be_chosen_and_ordered():
    assert declared(SourceOptions(columns=("OFFSET", "value", "headers"))) == (
        "`offset` bigint NOT NULL, `value` binary, `headers` array<struct<key:string,value:binary>>"
    )


def test_a_column_that_no_record_has_is_refused_with_the_nearest():
    with pytest.raises(InvalidColumns, match=r"records have no column offsets; did you mean offset\?"):
        declared(SourceOptions(columns=("offsets",)))
    with pytest.raises(InvalidColumns, match="records have no column zzz; there are: key, value, topic"):
        check([("zzz", "int")])


def test_a_column_of_another_type_is_refused():
    with pytest.raises(InvalidColumns, match="column value is binary, not string: read it so and cast it"):
        check([("offset", "bigint"), ("value", "string")])


def test_columns_of_a_users_schema_are_found_in_their_order():
    assert check([("Offset", "bigint"), ("VALUE", "binary")]) == ["offset", "value"]
    assert check(TYPES.items()) == list(TYPES)


def test_the_broker_is_asked_for_what_columns_are_made_of():
    assert needed(["value"]) == ["value"]
    assert needed(["offset", "key", "timestamp", "timestampType"]) == ["key", "timestamp"]
    assert needed(["headers"]) == ["headers"]


def test_where_nothing_is_needed_little_is_asked_for():
    assert needed(["offset", "topic", "partition"]) == ["timestamp"]
