"""Which DataFrames may be written, and the sentence for those that may not."""

from __future__ import annotations

import pytest
from penstock.spark.errors import InvalidColumns
from penstock.spark.sink.columns import Layout, layout_of
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

HEADERS = "array<struct<key:string,value:binary>>"
SIMPLE = (StringType(), BinaryType(), IntegerType(), LongType(), TimestampType())
HEADER = StructType().add("key", StringType()).add("value", BinaryType())
TURNED = StructType().add("value", BinaryType()).add("key", StringType())
NESTED = (ArrayType(HEADER), ArrayType(TURNED), ArrayType(StringType()), MapType(StringType(), BinaryType()))
TYPES: dict[str, DataType] = {known.simpleString(): known for known in (*SIMPLE, *NESTED)}


def schema(text: str) -> StructType:
    """A schema from `name type, name type`; Spark's own reader of such text needs a session."""
    found = StructType()
    for column in text.split(", "):
        name, type_ = column.split(" ")
        found.add(name, TYPES[type_])
    return found


def test_columns_are_found_by_name_in_any_order_and_case():
    layout = layout_of(schema("Partition int, VALUE string, key binary"), "flights")
    assert layout == Layout(("partition", "value", "key"), (0, 1, 2), "flights")


def test_a_topic_column_says_where_each_row_goes():
    assert layout_of(schema("value string, topic string, key string"), "") == Layout(("value", "key"), (0, 2), "", 1)


def test_the_option_overrides_the_topic_column():
    assert layout_of(schema("value string, topic string"), "flights") == Layout(("value",), (0,), "flights")


def test_everything_that_the_source_gives_may_be_written_back():
    read = schema(
        f"key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        f"timestampType int, headers {HEADERS}"
    )
    assert layout_of(read, "").names == ("key", "value", "partition", "timestamp", "headers")


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ("key string", 'needs a column "value"'),
        ("value int", "'value' is int and must be string or binary"),
        ("value string, key bigint", "'key' is bigint and must be string or binary"),
        ("value string, partition bigint", "'partition' is bigint and must be int"),
        ("value string, timestamp string", "'timestamp' is string and must be timestamp"),
        ("value string, headers map<string,binary>", f"'headers' is map<string,binary> and must be {HEADERS}"),
        ("value string, headers array<string>", "'headers' is array<string> and must be"),
        ("value string, headers array<struct<value:binary,key:string>>", "must be " + HEADERS),
        ("value string, topic binary", "'topic' is binary and must be string"),
        ("value string, carrier string", "'carrier' is not part of a record: select only key, value"),
        ("value string, header string", "did you mean 'headers'?"),
        ("value string, Value string", "column 'value' stands in the DataFrame twice"),
    ],
)
def test_a_column_that_cannot_be_written_is_refused(columns, says):
    with pytest.raises(InvalidColumns, match=r".") as refused:
        layout_of(schema(columns), "flights")
    assert says in refused.value.message


def test_rows_that_go_nowhere_are_refused():
    with pytest.raises(InvalidColumns, match='give the option "topic", or a column "topic"; this DataFrame has value'):
        layout_of(schema("value string"), "")


def test_a_dataframe_without_columns_is_refused():
    with pytest.raises(InvalidColumns, match="this DataFrame has no columns"):
        layout_of(StructType([]), "flights")
