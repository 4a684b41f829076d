"""What a member of a simulated shard has for itself: its logs, in memory, and the port that its answers come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.broker.replica.member_logs import MemberLogs
from penstock.storage import snapshots
from penstock.storage.jobs import InlineJobs
from penstock.storage.segment_reader import SegmentCache
from support.engine import MemoryPort

if TYPE_CHECKING:
    from penstock.broker.replica.replicated import Replicated
    from penstock.storage.promises import Promises
    from support.members import Member

DATA = "data"


class CountedJobs(InlineJobs):
    """Notes which members unlink segments that retention took."""

    def __init__(self, member: Member) -> None:
        super().__init__(member.files)
        self._member = member

    def unlink(self, directory: str, names: Sequence[str], *told: Any) -> None:
        super().unlink(directory, names, *told)
        if directory != f"{DATA}/order":
            self._member.shard.count("freed by a leader" if self._member.leads else "freed by a follower")


class MemberStore(MemberLogs):
    """The logs of one member in memory."""

    def __init__(self, member: Member, promises: Promises, order: Replicated) -> None:
        files = member.files
        super().__init__(
            DATA, files, promises=promises, cache=SegmentCache(files), jobs=CountedJobs(member),
            max_batch_bytes=1 << 20, order=order,
        )  # fmt: skip

    def erase(self, entry: int) -> None:
        """No file goes that an opening at the newest checkpoint needs."""
        saved = max(snapshots.seq_of(name) or 0 for name in self.files.listdir(f"{DATA}/order"))
        assert entry <= saved, f"files go with entry {entry}, and the newest checkpoint is of {saved}"
        super().erase(entry)


class AnswerPort(MemoryPort):
    """Finds answers by their requests."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[int, tuple[Any, bytes]] = {}

    def reply(self, peer: Any, message: Any, payload: Any = b"") -> bool:
        self.answers.setdefault(getattr(message, "request", 0), (message, bytes(payload)))
        return True
