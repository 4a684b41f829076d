"""What a member knows to have lost: a file that says so, until what it lacks is installed.

Idea: damage that was found once counts from then on, whatever a later opening makes of the files. Only the install of
a state that was fetched for it takes the file away (installing.py).

Contract: `DATA/damaged` is written durably. While it is there, the member neither votes nor acknowledges.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ...storage.data_directory import DAMAGED, METADATA, ORDER, TOPICS
from ...storage.errors import Corrupt, InvalidBatch, NewerFormat, Poisoned, StorageError, StorageFull, is_damage
from ..raft.errors import EntriesLost
from .errors import ReplicaBroken, StateDiffers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...storage.batch import Batch
    from ...storage.files import Files


class NotedDamage(Struct, frozen=True, omit_defaults=True):
    """What was found first, and the logs that are not to be relied on, by path.

    `judged`: the files themselves say it all, so that an opening judges anew once their batches are whole (mending.py).
    `mended`: they are, so the next opening judges.
    """

    reason: str
    paths: list[str] = []
    judged: bool = False
    mended: bool = False

    def logs(self, data: str) -> set[str]:
        """The logs of the paths, below the data directory."""
        return {log for path in self.paths if (log := log_in(data, path))}


def noted(files: Files, data: str) -> NotedDamage | None:
    """The damage of a data directory; None without any. Raises StorageFull, OSError where that cannot be told now."""
    path = f"{data}/{DAMAGED}"
    if not files.exists(path):
        return None
    try:
        return msgspec.json.decode(files.read(path), type=NotedDamage)
    except (msgspec.MsgspecError, OSError) as error:
        if isinstance(error, OSError) and not is_damage(error):
            raise
        return NotedDamage(f"{path} cannot be read: {error}")


def note(files: Files, data: str, reason: str, path: str = "", *, judged: bool = False) -> NotedDamage:
    """Note damage, of the log or a file of it at `path`. Returns all that is noted. Raises StorageFull, OSError."""
    log, before = log_in(data, path), noted(files, data)
    judged = judged and bool(log)
    if before is None:
        found = NotedDamage(reason, [path] if path else [], judged)
    else:
        paths = [*before.paths, path] if path and path not in before.paths else before.paths
        if before.mended:  # and it is something else than batches of these logs
            judged = judged and log not in before.logs(data)
            found = NotedDamage(reason, paths, judged)
        else:
            found = NotedDamage(before.reason, paths, before.judged and judged)
    files.rewrite(f"{data}/{DAMAGED}", msgspec.json.encode(found))
    return found


def note_mended(files: Files, data: str, found: NotedDamage) -> None:
    """All batches of the logs that are noted are whole. Raises StorageFull, OSError."""
    files.rewrite(f"{data}/{DAMAGED}", msgspec.json.encode(msgspec.structs.replace(found, mended=True)))


def forget(files: Files, data: str) -> None:
    """Nothing is damaged any more, as an opening has judged. Raises OSError."""
    if files.exists(f"{data}/{DAMAGED}"):
        files.unlink(f"{data}/{DAMAGED}")
        files.sync_dir(data)


def log_in(data: str, path: str) -> str:
    """The log, below the data directory, that a path leads to or into; "" for any other path."""
    parts = path.removeprefix(f"{data}/").split("/")
    if not path.startswith(f"{data}/") or parts[0] not in (METADATA, ORDER, TOPICS):
        return ""
    depth = 3 if parts[0] == TOPICS else 1
    return "/".join(parts[:depth]) if len(parts) >= depth else ""


def note_of(files: Files, data: str, error: BaseException) -> str:
    """Note what an error that closes a replica says of its files. Returns what kept it from being noted; "" if it was,
    or says nothing.

    On a full disk, for example, the next replica goes on with the damage until it is met again.
    """
    try:
        if isinstance(error, Corrupt):
            note(files, data, error.message, error.path, judged=not isinstance(error, StateDiffers))
        elif isinstance(error, EntriesLost):
            note(files, data, str(error))
    except (StorageFull, OSError) as kept:
        return str(kept)
    return ""


def why_anew(error: BaseException) -> str:
    """Why a replica that an error closed is opened anew, for the operator; "" for an error that should not happen."""
    of_system = error.__cause__ if type(error) is StorageError else error
    failed = isinstance(of_system, OSError) and of_system.errno == errno.EIO  # a file was read, written or synced
    if failed or isinstance(error, (Corrupt, EntriesLost, Poisoned, ReplicaBroken, StorageFull)):
        return f"this node closes its files and opens them anew: {getattr(error, 'message', error)}"
    return ""


def damage_of(error: StorageError | OSError, path: str) -> Corrupt | None:
    """What an error of reading the log at `path` says of its bytes; None for nothing. A bad sector is damage: the other
    members have what stood there."""
    if isinstance(error, OSError) and error.errno == errno.EIO:
        return Corrupt(f"{path} cannot be read: {error.strerror}", path=path)
    return error if isinstance(error, Corrupt) else None


def verify(batches: Iterable[Batch], path: str) -> None:
    """Raise Corrupt where a batch that was read from the log at `path` does not verify, columns included.

    A reader verifies headers and leaves the columns to its caller, as there is no other copy. Here the
    other nodes have one, so what leaves a member is verified before, and the member is what learns of its damage.
    """
    for batch in batches:
        try:
            batch.check()
        except NewerFormat:
            continue  # of a later version, which verifies it
        except InvalidBatch as error:
            raise Corrupt(
                f"batch {batch.seq} of {path} cannot be read: {error.message}", path=path, next_offset=batch.end_offset
            ) from error
