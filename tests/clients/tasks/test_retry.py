"""Retry is the queue's settings in other words."""

from __future__ import annotations

from datetime import timedelta

import pytest
from penstock import Retry
from penstock.broker.engine.tables.queues.settings import QueueSettings, parse
from penstock.errors import InvalidArgument


def test_what_is_not_said_is_what_a_queue_does_by_itself():
    assert parse(Retry().settings()) == QueueSettings()


def test_attempts_may_be_given_without_their_name():
    assert Retry(5) == Retry(max_attempts=5)


def test_times_may_be_written_as_anywhere():
    retry = Retry(max_attempts=5, backoff="200ms", max_backoff=timedelta(minutes=1), jitter=0)
    assert retry.settings() == {"max_attempts": 5, "backoff_s": 0.2, "backoff_max_s": 60.0, "jitter": 0.0}


@pytest.mark.parametrize(
    "given", [{"max_attempts": 0}, {"backoff": -1}, {"backoff": "soon"}, {"max_backoff": -0.1}, {"jitter": 1.5}]
)
def test_what_cannot_be_is_refused_where_it_is_written(given):
    with pytest.raises(InvalidArgument, match=next(iter(given))):
        Retry(**given)
