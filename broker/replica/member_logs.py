"""The logs of a member: those of a node, kept in step with the order.

Idea: as `storage.log_store`, with three differences. A follower makes a partition's log when the catalogue names it,
since no request came here. Files of deleted topics, and segments that retention took, go once a checkpoint covers that:
opening needs them before. One snapshot is enough for segments to go, as the other members have what it says, too: a
second one needs another batch, which an idle log gets only where its leader lacks one.

What an opening set aside, as nothing in the order named it, goes too, once a checkpoint behind all that the order had
then tells that no topic has it: the topic was deleted while the member was away, or never was. With such a checkpoint
goes what was staged of a state, where none is fetched any more: entries have come after all.

Contract: mixed into a store. A log that has a place in the order, and no files, is damage: it is never made anew.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ...storage import layout, log_ids
from ...storage.data_directory import ASIDE, STAGED, TOPICS, partition_paths, topics_of
from ...storage.log_store import LogSettings, LogStore
from .departing import Departing
from .errors import ReplicaDamaged
from .places import START, Places

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from ...storage.log import LogWriter
    from ...storage.segment import SegmentRef


_BY_ID = re.compile(r"([0-9a-f]{32})-[0-9a-f]{8}")
"""The name of a log that was set aside as nothing named it (opening.py); what was damaged has other names."""


class MemberLogs(LogStore):
    """See the module. `places` is set before the first call."""

    places: Places

    def __init__(self, *args: Any, **options: Any) -> None:
        """Arguments as of the store that this is mixed into."""
        super().__init__(*args, **options)
        self.departing = Departing()
        self.hurried: dict[LogWriter, None] = {}
        """Logs that are to be synced soon."""
        self._opened_at = 0  # the last entry of the order, when it was opened
        self._has_looked_aside = False

    def open(self, topic: bytes, partition: int, settings: LogSettings) -> LogWriter:
        """Open a partition's log, or make it. Raises ReplicaDamaged, and what `LogStore.open` does."""
        path = self.directory(topic, partition)
        if layout.live_segments(self.files.listdir(path))[0]:
            return super().open(topic, partition, settings)
        if self.places.end.get(log_ids.own_id(path) or b"", START) != START:
            raise ReplicaDamaged(f"{path} is gone, and the order has batches of it")
        return self.create(topic, partition, settings)

    def hurry(self, log: LogWriter) -> None:
        """Have a log synced soon, though no entry waits for it: its batches stand in the order."""
        self.hurried[log] = None

    def delete(self, topic: bytes) -> None:
        """The deletion is applied: let go of the logs. Their files go with `erase`."""
        self.departing.delete(topic, self._of_topic.get(topic, []), self.places.entry)

    def retire(self, log: LogWriter, segments: Sequence[SegmentRef]) -> None:
        """What is applied lets segments go. Their files go with `erase`."""
        leaving = self._of(log).retiring
        self.departing.retire(log, [each for each in segments if each.path not in leaving], self.places.entry)

    def removable_to(self, log: LogWriter) -> int:
        """The last batch of the newest durable snapshot."""
        return self._of(log).newest

    def erase(self, entry: int) -> None:
        """A checkpoint of `entry` is durable: remove the files that may go since what it covers.

        And where no state is fetched: what was staged of one, as entries have come after all.
        """
        for topic in self.departing.take_topics(entry):
            super().delete(topic)
        for log, segments in self.departing.take_segments(entry):
            super().retire(log, segments)
        if entry > self._opened_at:
            self._throw_away(f"{self._data}/{STAGED}")
            if not self._has_looked_aside:
                self._has_looked_aside = True
                self._erase_aside()

    def _erase_aside(self) -> None:
        """Remove logs that were set aside, and that no topic has any more, and directories that they left empty."""
        aside, topics = f"{self._data}/{ASIDE}", f"{self._data}/{TOPICS}"
        known = {log.log_id for logs in self._of_topic.values() for log in logs} | self.places.end.keys()
        for name in self.files.listdir(aside):
            if (found := _BY_ID.fullmatch(name)) and bytes.fromhex(found[1]) not in known:
                self._jobs.remove_tree(f"{aside}/{name}")
        for topic in topics_of(self.files, self._data):
            if not self.files.listdir(f"{topics}/{topic.hex()}"):
                super().delete(topic)

    def retire_order(self, log: LogWriter, segments: Sequence[SegmentRef]) -> None:
        """Have segments of the order log unlinked, which two checkpoints cover."""
        super().retire(log, segments)

    def deleted_logs(self, entry: int) -> set[bytes]:
        """Ids of the logs of topics that were deleted up to an entry, whose files are still there."""
        topics = [topic for topic, at in self.departing.topics.items() if at <= entry]
        return {log_id for topic in topics for log_id in self._ids_of(topic)}

    def _ids_of(self, topic: bytes) -> Iterator[bytes]:
        """Ids of the logs in the directory of a topic."""
        return (log_ids.own_id(path) or b"" for path in partition_paths(self.files, self._data, topic))

    def delete_left_over(self, known: Container[bytes]) -> None:
        """At opening: delete topics that the catalogue does not have any more, though the order named their logs.

        The catalogue forgets a deletion once the leader's files are noted.
        """
        self._opened_at = self.places.last
        for topic in topics_of(self.files, self._data):
            if topic not in known and any(log_id in self.places.applied for log_id in self._ids_of(topic)):
                self.delete(topic)
