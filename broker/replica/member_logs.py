"""The logs of a member: those of a node, kept in step with the order.

Idea: as `storage.log_store`, with two differences. A follower makes a partition's log when the catalogue names it,
since no request came here. A deleted topic's files go once a checkpoint covers the deletion: opening needs them before.

Contract: mixed into a store. A log that has a place in the order, and no files, is damage: it is never made anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage import layout, log_ids
from ...storage.log_store import LogSettings, LogStore
from .errors import ReplicaDamaged
from .places import START, Places

if TYPE_CHECKING:
    from ...storage.log import LogWriter


class MemberLogs(LogStore):
    """See the module. `places` is set before the first call."""

    places: Places

    def open(self, topic: bytes, partition: int, settings: LogSettings) -> LogWriter:
        """Open a partition's log, or make it. Raises ReplicaDamaged, and what `LogStore.open` does."""
        path = self.directory(topic, partition)
        if layout.live_segments(self.files.listdir(path))[0]:
            return super().open(topic, partition, settings)
        if self.places.end.get(log_ids.own_id(path) or b"", START) != START:
            raise ReplicaDamaged(f"{path} is gone, and the order has batches of it")
        return self.create(topic, partition, settings)

    def hurry(self, log: LogWriter) -> None:
        """Nothing: no topic of a cluster has commits that do not wait for the disk."""

    def delete(self, topic: bytes) -> None:
        """The deletion is applied: let go of the logs. Their files go with `erase`."""
        self._deleted()[topic] = self.places.entry

    def erase(self, entry: int) -> None:
        """A checkpoint of `entry` is durable: remove the files of topics that were deleted up to there."""
        deleted = self._deleted()
        for topic in [topic for topic, at in deleted.items() if at <= entry]:
            del deleted[topic]
            super().delete(topic)

    def deleted_logs(self, entry: int) -> set[bytes]:
        """Ids of the logs of topics that were deleted up to an entry, whose files are still there."""
        topics = [topic for topic, at in self._deleted().items() if at <= entry]
        return {log.log_id for topic in topics for log in self._of_topic.get(topic, [])}

    def _deleted(self) -> dict[bytes, int]:
        return self.__dict__.setdefault("deleted", {})
