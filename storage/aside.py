"""Moves foreign files out of a log's directory, and creates a new log where nothing is left.

Idea: a moved file keeps its bytes and its name, with `.lost` added (`.2.lost` where that is taken, and so on), so that
an operator can inspect it or move it back.

Contract: offline, under the writer's lock. Must not know: what was damaged, and whether its loss is accepted.
"""

from __future__ import annotations

from collections.abc import Callable

from . import cutting, finals, layout, runs, snapshots
from .accepted import FILE_NAME
from .files import Files
from .recovery import NOTHING

SET_ASIDE = ".lost"
"""Added to the name of a file: kept, but no part of the log."""
NO_FILE = "a directory, a link or a socket where a file belongs"


def set_aside(files: Files, path: str, reason: str) -> str:
    """Give what stands at `path` a name that no log knows and nothing else has, durably. Says what it did."""
    name, number = f"{path}{SET_ASIDE}", 1
    while files.exists(name):
        number += 1
        name = f"{path}.{number}{SET_ASIDE}"
    files.rename(path, name)
    files.sync_dir(path.rpartition("/")[0])
    return f"set {path} aside as {name}: {reason}"


def strangers(files: Files, directory: str, named: Callable[[str], bool]) -> list[str]:
    """Paths of what has such a name, and is no file."""
    paths = (f"{directory}/{name}" for name in sorted(filter(named, files.listdir(directory))))
    return [path for path in paths if files.exists(path) and not files.is_file(path)]  # retention may unlink it now


def set_strangers_aside(files: Files, directory: str, may_go: Callable[[str], bool]) -> list[str]:
    """Move away what has the name of a file that may go, and is no file. Says what it did."""
    return [set_aside(files, path, NO_FILE) for path in strangers(files, directory, may_go)]


def is_spareable(name: str) -> bool:
    """Whether a log goes on without the file of this name: what an index, a snapshot or finals said is found again."""
    base = name.removesuffix(".new")
    return (
        layout.parse_index_name(name) is not None
        or snapshots.seq_of(base) is not None
        or runs.number_of(name) is not None
        or (name.startswith(finals.PREFIX) and not name.endswith(SET_ASIDE))
        or base in (FILE_NAME, layout.BOARD, layout.POISON)
        or name == f"{layout.PROMISES}.new"
    )


def is_spareable_or_segment(name: str) -> bool:
    """Whether a log that is to go on without what it lost goes on without the file of this name."""
    return is_spareable(name) or is_segment(name)


def is_of_a_log(name: str) -> bool:
    """Whether a log has a file of this name, or may have one."""
    return is_spareable_or_segment(name) or name in (layout.LOCK, layout.PROMISES)


def is_segment(name: str) -> bool:
    """Whether a file of this name holds batches."""
    return layout.parse_segment_name(name) is not None


def make_anew(files: Files, directory: str) -> list[str]:
    """An empty log where no segment is left. It is another log: what else is there of the old one is set aside.

    Says what it did.
    """
    files.mkdir(directory)
    old = sorted(filter(is_spareable, files.listdir(directory)))
    said = [set_aside(files, f"{directory}/{name}", "of a log of which no segment is left") for name in old]
    cutting.begin_generation(files, directory, files.new_id(), NOTHING, 1, clean=True).close()
    made = f"make an empty log in {directory}: nothing of its own is left, so offsets are given out again"
    return [made, *said]
