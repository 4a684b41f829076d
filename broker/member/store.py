"""The store of a member's process: logs in the data directory and on the board, kept in step with the order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..replica.member_logs import MemberLogs
from ..store import DirectoryStore

if TYPE_CHECKING:
    from ..replica.replicated import Replicated


class MemberStore(MemberLogs, DirectoryStore):
    """See the module. All logs have one order."""

    def __init__(self, *args: Any, order: Replicated, **options: Any) -> None:
        """Arguments as of `DirectoryStore`."""
        super().__init__(*args, **options)
        self._order = order

    def delete(self, topic: bytes) -> None:
        """The deletion is applied: the logs are closed, so their rows are free. Files go behind a checkpoint."""
        for log in self._of_topic.get(topic, []):
            self._let_go(log)
        super().delete(topic)
