"""Fields of many entries become the records that each would be alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from penstock.gateway.resp.entries import record_of
from penstock.gateway.resp.fields import records_of
from penstock.gateway.resp.refusals import CommandRefused

NAMES = [b"value", b"key", b"a", b"b", "ä".encode()]


def alone(entries: list[list[bytes]]) -> Any:
    """By columns, or what the first refused entry says."""
    try:
        columns = zip(*map(record_of, entries), strict=True)
    except CommandRefused as error:
        return str(error)
    values, keys, headers = map(list, columns)
    return values, None if set(keys) == {None} else keys, None if headers == [None] * len(headers) else headers


def together(entries: list[list[bytes]]) -> Any:
    try:
        values, keys, headers = records_of(list(zip(*entries, strict=True)))
    except CommandRefused as error:
        return str(error)
    return list(values), None if keys is None else list(keys), None if headers is None else list(headers)


@pytest.mark.parametrize("alike", [True, False])
def test_records_are_those_of_each_entry_alone(seed, alike):
    randomly = random.Random(seed)
    refused = 0
    for _ in range(2_000):
        fields, count = randomly.randrange(1, 4), randomly.randrange(1, 6)
        names = randomly.choices(NAMES, k=fields)
        chosen = [names if alike else randomly.sample(NAMES, fields) for _ in range(count)]
        entries = [[word for name in each for word in (name, randomly.randbytes(2))] for each in chosen]
        found = together(entries)
        assert found == alone(entries)
        refused += isinstance(found, str)
    assert (refused > 0) is alike


@pytest.mark.parametrize("words", [[], [[b"value"]], [[b"value"], [b"x"], [b"a"]]])
def test_fields_without_values_are_refused(words):
    with pytest.raises(CommandRefused, match="wrong number"):
        records_of(words)
