"""Mapped delivery: a consumer that reads the broker's files itself, woken through a semaphore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..transport.consumer_session import ConsumerSession, Delivery
from .errors import MappedUnavailable

if TYPE_CHECKING:
    from ..transport.messages import Joined, Topic, Welcome


class MappedSource:
    """The files of one mapped session."""

    def __init__(self, welcome: Welcome, topic: Topic, joined: Joined) -> None:
        raise MappedUnavailable("mapped delivery is not there yet")

    def next(self, session: ConsumerSession) -> Delivery | None:
        """The next batches of any of its partitions."""

    def sleep(self, seconds: float) -> None:
        """Wait for new records."""

    def close(self) -> None:
        """Unmap."""
