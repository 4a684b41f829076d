"""Attaching to a lent log: opens the files that a grant names.

Contract: an opening of DATA/lock of its own for each grant, because a lock belongs to the opening: copies of its
descriptor would share it. Files of another identity than the grant says are refused, and a grant whose time has
passed by the clock of this process, which may be in a container with a clock of its own. Must not know: how it came.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import TYPE_CHECKING

from ..board import Board
from ..errors import BoardUnavailable
from ..layout import SegmentName, log_number
from ..range_locks import RangeLocks
from ..segment import reference
from .appending import DirectAppender
from .grant import GOOD_S
from .incarnation import Incarnation
from .waking import RowWakes

if TYPE_CHECKING:
    from ..files import Files
    from .grant import LogGrant

MISSING = "" if sys.platform == "linux" and platform.machine() == "x86_64" else "only on Linux on x86-64"
"""Why no log can be lent to a process here; "" if one can: freeing a lock must be a barrier."""


def attach(grant: LogGrant, *, directory: str, lock: str, board: str, files: Files) -> DirectAppender:
    """Open what a grant names. `directory` is the log's, `lock` is DATA/lock, `board` the board's name.

    Raises BoardUnavailable where anything is not what the broker has, OSError, ValueError, StorageFull.
    """
    if MISSING:
        raise BoardUnavailable(f"logs are lent {MISSING}")
    age_s = time.monotonic() - grant.monotonic_s
    if not 0 <= age_s <= GOOD_S:
        raise BoardUnavailable(f"the grant is {age_s:.0f} s old: was it left unread, or is this another clock's time?")
    name = reference(directory, SegmentName(grant.base_seq, grant.generation))
    incarnation = Incarnation(lock)
    shared = Board.attach(board, write=True)
    row = shared.row(grant.row)
    segment, index = files.open(name.path, write=True), files.open(name.index_path, write=True)
    found = segment.identity(), index.identity(), incarnation.identity
    if found != grant.files or row.log_id != log_number(grant.log_id) or incarnation() != grant.incarnation:
        raise BoardUnavailable(f"{directory} is not the log that the broker lends: is it another mount?")
    locks = RangeLocks(lock)
    if os.stat(lock).st_ino != grant.files[2][1]:
        locks.close()
        raise BoardUnavailable(f"{lock} was replaced")
    return DirectAppender(
        grant, row, locks, segment, index, incarnation=incarnation, monotonic=time.monotonic,
        wakes=RowWakes(shared, row),
    )  # fmt: skip
