"""A pipeline's own questions to the broker, before Spark starts and after it ended.

Contract: each question has a connection of its own, closed when it is answered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...clients import Client, connect
from ...clients.errors import InvalidArgument
from .identity import whole_topic

NAME = "penstock-pipeline"


def ask(url: str) -> Client:
    """A client, to be closed. Raises TimedOut, InvalidUrl."""
    return connect(url, name=NAME)


def ids_of(url: str, topics: Sequence[str]) -> dict[str, str]:
    """The ids of topics by name. Raises UnknownTopic."""
    with ask(url) as client:
        return {name: client.topic(name).id for name in topics}


def source_and_target(url: str, topic: str, target: str) -> tuple[dict[str, str], str]:
    """The id of the topic that is read, and how the one that is written is called.

    Raises UnknownTopic; InvalidArgument when they are the same: what is written would be read again.
    """
    if topic == target:
        raise InvalidArgument(f"topic {topic} is both source and target, and would read what it writes: name another")
    with ask(url) as client:
        return {topic: client.topic(topic).id}, whole_topic(client.topic(target))


def commit(url: str, group: str, ends: Mapping[str, Mapping[int, int]]) -> None:
    """Have a group stand at these offsets."""
    with ask(url) as client:
        for topic, positions in ends.items():
            client.commit_group(topic, group, positions)
