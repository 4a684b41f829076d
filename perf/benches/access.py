"""The cost of asking what a user may do: to producers, and of a question that was not asked before.

The broker remembers what a user may do, so a stream of requests costs a look-up each, and the first request about a
topic or group a search through the user's grants. Beside it runs the same client at a broker without users.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import penstock
from penstock.broker import access_file
from penstock.broker.rights import OPERATIONS, Grant, Principal, authorize

from ..lab.harness import Lab
from ..lab.rows import Row
from ..systems.broker import serve
from .produce import producer_of

WITHOUT = "without users"
RECORDS = 1_200_000
GRANTS = 20
"""Of the user; the last of them decides."""
QUESTIONS = 2_000
"""Fewer than a principal remembers, so that none is thrown away in between."""


def rows(lab: Lab) -> Iterator[Row]:
    values = [b"v" * 100] * lab.count(RECORDS)
    with lab.place() as place, lab.place() as other:
        settings = {"access": str(_users(place / "access"))}
        with (
            serve(place, settings=settings) as asks,
            serve(other) as trusts,
            penstock.connect(asks.url) as one,
            penstock.connect(trusts.url) as two,
            producer_of(one, "orders") as asked,
            producer_of(two, "orders") as trusted,
        ):
            yield Row(
                "access: send_many of 100 B by a user with grants", "records/s", partial(_many, asked, values),
                limits={WITHOUT: partial(_many, trusted, values)}, ratio_goals={WITHOUT: 0.98}, durability="durable",
            )  # fmt: skip
            yield Row(
                "access: send of one record by a user with grants", "us", partial(_one, asked),
                limits={WITHOUT: partial(_one, trusted)}, more_is_better=False, durability="durable",
            )  # fmt: skip
    yield Row(
        f"access: a question that was not asked before, {GRANTS} grants",
        "us",
        _questions,
        more_is_better=False,
        goal=5.0,
    )


def _grants() -> list[Grant]:
    others = [Grant(False, frozenset(OPERATIONS), f"topic:team-{number}-*") for number in range(GRANTS - 1)]
    return [*others, Grant(False, frozenset(OPERATIONS), "topic:orders*")]


def _users(path: Path) -> Path:
    """A file of this user, with grants."""
    access_file.set_uid(str(path), "bench", os.getuid())
    for grant in _grants():
        access_file.add_grant(str(path), "bench", grant)
    return path


def _many(producer: penstock.Producer, values: list[bytes]) -> float:
    begun = time.perf_counter()
    producer.send_many(values)
    return len(values) / (time.perf_counter() - begun)


def _one(producer: penstock.Producer) -> float:
    """The mean of some hundred: fdatasync takes most of each."""
    begun = time.perf_counter()
    for _ in range(300):
        producer.send(b"v" * 100)
    return (time.perf_counter() - begun) * 1e6 / 300


def _questions() -> float:
    principal = Principal("bench", _grants())
    resources = [f"topic:orders-{number}" for number in range(QUESTIONS)]
    begun = time.perf_counter()
    for resource in resources:
        authorize(principal, "write", resource)
    return (time.perf_counter() - begun) * 1e6 / QUESTIONS
