"""Options: read without regard to case, refused with a way out."""

from __future__ import annotations

from typing import Annotated

import pytest
from penstock.spark.errors import InvalidOption
from penstock.spark.options import (
    Endpoint,
    Option,
    count,
    describe,
    duration,
    flag,
    names,
    one_of,
    read_options,
    size,
    text,
)
from penstock.transport.url import addresses


class Sample(Endpoint, frozen=True, kw_only=True):
    topics: Annotated[tuple[str, ...], Option("subscribe", names, "Topics.")] = ()
    most: Annotated[int, Option("maxOffsetsPerTrigger", count, "Records.")] = 0
    strict: Annotated[bool, Option("failOnDataLoss", flag, "Fail.")] = True
    way: Annotated[str, Option("mapped", one_of("auto", "true"), "How.")] = "auto"
    room: Annotated[int, Option("maxBytesPerTrigger", size, "Bytes.")] = 0


def test_every_kind_of_value_is_read():
    given = {
        "url": " tcp://host:7070 ",
        "subscribe": "a, b,a,",
        "maxOffsetsPerTrigger": "400000",
        "failOnDataLoss": "FALSE",
        "mapped": "True",
        "maxBytesPerTrigger": "64MB",
        "timeout": "2m",
    }
    found = read_options(Sample, given)
    assert found == Sample(
        url="tcp://host:7070", topics=("a", "b"), most=400_000, strict=False, way="true", room=64 << 20, timeout_s=120.0
    )


def test_case_does_not_matter():
    assert read_options(Sample, {"MAXOFFSETSPERTRIGGER": "5"}).most == 5
    assert read_options(Sample, {"maxoffsetspertrigger": "5"}).most == 5


def test_without_options_defaults_hold():
    assert read_options(Sample, {}) == Sample()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("subscribed", "subscribe"),
        ("maxoffsetpertrigger", "maxOffsetsPerTrigger"),
        ("failondataloss_", "failOnDataLoss"),
        ("uri", "url"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(name, nearest):
    with pytest.raises(InvalidOption, match=f"option {name} is unknown; did you mean {nearest}\\?"):
        read_options(Sample, {name: "x"})


def test_a_name_that_is_only_a_little_alike_is_not_proposed():
    with pytest.raises(InvalidOption, match="option subscribe is unknown; there are: "):
        read_options(Endpoint, {"subscribe": "flights"})


def test_an_unknown_option_like_no_other_is_refused_with_all_that_there_are():
    with pytest.raises(InvalidOption, match=r"option zzzzzz is unknown; there are: failOnDataLoss, mapped, .*urlFile"):
        read_options(Sample, {"zzzzzz": "x"})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("maxOffsetsPerTrigger", "0", "a whole number from 1 up"),
        ("maxOffsetsPerTrigger", "-3", "a whole number from 1 up"),
        ("maxOffsetsPerTrigger", "many", "a whole number from 1 up"),
        ("failOnDataLoss", "yes", "true or false"),
        ("mapped", "never", "one of auto, true"),
        ("maxBytesPerTrigger", "0", "a size from 1 byte up"),
        ("maxBytesPerTrigger", "64 parsecs", "is not a size"),
        ("timeout", "soon", "is not a time"),
        ("subscribe", " , ", "one name or several"),
        ("url", " ", "it is empty"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name, value, says):
    with pytest.raises(InvalidOption, match=f"option {name}={value!r} cannot be used: .*{says}"):
        read_options(Sample, {name.lower(): value})


def test_the_servers_of_kafka_become_an_address():
    assert read_options(Sample, {"kafka.bootstrap.servers": "host:9092"}).url == "tcp://host:9092"
    assert read_options(Sample, {"kafka.bootstrap.servers": "unix:///a/b.sock"}).url == "unix:///a/b.sock"


def test_several_servers_of_kafka_become_the_addresses_of_one_cluster():
    url = read_options(Sample, {"kafka.bootstrap.servers": "a:1, b:2,c:3"}).url
    assert addresses(url) == ["tcp://a:1", "tcp://b:2", "tcp://c:3"]


def test_options_of_kafkas_client_are_refused():
    with pytest.raises(InvalidOption, match=r"kafka\.group\.id .* leave it out"):
        read_options(Sample, {"kafka.group.id": "report"})


def test_what_spark_adds_and_what_changes_nothing_is_passed_by():
    given = {"checkpointLocation": "/c", "queryName": "q", "path": "/p", "kafkaConsumer.pollTimeoutMs": "5"}
    assert read_options(Sample, given) == Sample()


def test_options_are_described_with_their_defaults():
    found = {each.name: each for each in describe(Sample)}
    assert list(found)[:4] == ["url", "urlFile", "timeout", "subscribe"]
    assert found["timeout"].default == "30 s"
    assert found["failOnDataLoss"].default == "true"
    assert found["url"].default == found["maxOffsetsPerTrigger"].default == ""
    assert found["mapped"] == ("mapped", "auto", "How.")


def test_texts_are_stripped():
    assert text(" a ") == "a"
    assert duration("15m") == 900.0
