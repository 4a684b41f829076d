"""Ids of tasks: read from the right, refused with a sentence."""

from __future__ import annotations

import pytest
from penstock.clients import InvalidArgument
from penstock.clients.queues.task_ids import parse_task_id, task_id


@pytest.mark.parametrize(
    ("topic", "partition", "offset"),
    [("mails", 0, 17), ("late-flights-2026", 3, 0), ("a-0-1", 12, 9_000_000_000), ("x", 0, 2**62)],
)
def test_an_id_names_topic_partition_and_offset(topic, partition, offset):
    assert parse_task_id(task_id(topic, partition, offset)) == (topic, partition, offset)


@pytest.mark.parametrize(
    "text", ["", "mails", "mails-0", "-0-1", "mails-0-", "mails-a-1", "mails-0-1x", "mails-00-1", "mails-0-01",
             "mails-0-+1", "mails-0-1\n", "mails-0-٣", "mails-0-" + "9" * 20, f"mails-0-{2**63}", None, 7,
             b"mails-0-1"],
)  # fmt: skip
def test_what_is_no_id_is_refused_with_an_example(text):
    with pytest.raises(InvalidArgument, match="topic-partition-offset, as in mails-0-17"):
        parse_task_id(text)
