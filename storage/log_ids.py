"""Log ids, and which log belongs in a partition's directory.

Idea: the log of a partition has a name-based UUID (version 5) of its topic's id and its number, so the directory
DATA/topics/<topic id>/<partition> says which log belongs there, and another partition's files are recognised. Embedded
logs, the metadata log, and a log that `repair` makes in place of a lost one have random ids (`Files.new_id`), as have
partitions' logs of older versions: their directories do not say whether such a log is their own.

Contract: only a name-based id can be in the wrong directory: another partition's, or the catalogue's. Random ones
belong where they are found. Must not know: segments.
"""

from __future__ import annotations

import re
import uuid

from .data_directory import METADATA, TOPICS
from .files import Files

_PARTITION = re.compile(rf"(?:.*/)?{TOPICS}/([0-9a-f]{{32}})/([0-9]+)")
_CATALOGUE = re.compile(rf"(?:.*/)?{METADATA}")
_NAME_BASED = 5


def own_id(directory: str) -> bytes | None:
    """The id of the log that belongs in a partition's directory; None for other directories."""
    found = _PARTITION.fullmatch(directory)
    return uuid.uuid5(uuid.UUID(hex=found[1]), found[2]).bytes if found else None


def is_catalogue(directory: str) -> bool:
    """Whether the log of this directory is a node's catalogue."""
    return _CATALOGUE.fullmatch(directory) is not None


def is_misplaced(directory: str, log_id: bytes) -> bool:
    """Whether a log was made for another directory than this one."""
    is_others = own_id(directory) not in (None, log_id) or is_catalogue(directory)
    return is_others and uuid.UUID(bytes=log_id).version == _NAME_BASED


def misplacement(files: Files, directory: str, log_id: bytes) -> str:
    """A sentence for what is of a log that was made for another directory."""
    own = own_id(directory)
    topics = f"{directory.removesuffix(METADATA)}{TOPICS}" if own is None else directory.rsplit("/", 2)[0]
    whose = "the catalogue's" if own is None else own.hex()
    return f"it is of log {log_id.hex()}, {_home(files, topics, log_id)}; the log of {directory} is {whose}"


def _home(files: Files, topics: str, log_id: bytes) -> str:
    for topic in files.listdir(topics):
        try:
            homes = [f"{topics}/{topic}/{number}" for number in files.listdir(f"{topics}/{topic}")]
        except NotADirectoryError:
            continue
        for home in homes:
            if own_id(home) == log_id:
                return f"which belongs in {home}"
    return "which belongs in no directory here"
