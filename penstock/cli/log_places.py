"""Finds the logs below paths, and those that a catalogue lists but are missing.

Idea: a path is one log, or a data directory with many. Directories of topics are named by ids: where the catalogue
beside them can be read, it has the topic's name, and says which partitions are gone. A data directory that no node
would open is a problem of its own, whatever its logs are like.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from .. import config as configuration
from ..storage import layout
from ..storage.data_directory import ASIDE, METADATA, TOPICS, TRASH, check_alone, check_kinds, identify, metadata_path
from ..storage.errors import Error
from ..storage.files import Files


class NoLog(Error):
    """A path without a log."""

    code = "no_log"


class Place(Struct, frozen=True):
    """The directory of one log."""

    path: str
    name: str  # below the path that was given
    topic: str | None  # None: no topic's, or of one that is not known

    @property
    def title(self) -> str:
        """The topic and partition, or else the path, for people."""
        return self.name if self.topic is None else f"{self.topic}/{os.path.basename(self.path)}"

    @property
    def topic_fields(self) -> dict[str, Any]:
        """The topic and partition, for programs."""
        return {} if self.topic is None else {"topic": self.topic, "partition": int(os.path.basename(self.path))}


class Places(Struct):
    """The logs found. `problems`: why data directories cannot be opened, by path. `data`: those that logs are of."""

    logs: list[Place]
    problems: dict[str, Error]
    data: set[str] = field(default_factory=set)

    def check_alone(self) -> None:
        """Raise ForeignDirectory where logs are of a cluster's member: it gets what it lacks from the others."""
        for data in sorted(self.data - set(self.problems)):
            check_alone(identify(Files(), data), data)


def places(paths: tuple[Path, ...]) -> Places:
    """All logs at `paths`, or in the configured data directory. Raises NoLog if there are none."""
    found = Places([], {})
    for given in paths or (configuration.load().config.data,):
        root = Path(given).absolute()
        present = set(_below(root))
        names: dict[Path, str] = {}
        for data in sorted(_data_directories(root, present)):
            names |= _catalogue(data)
            found.data.add(str(data))
            if data == root:
                found.problems |= _problems(data)
        logs = sorted(present | {each for each in names if each.is_relative_to(root)})
        if not logs and str(root) not in found.problems:
            raise NoLog(f"there is no log in {root}: name a data directory or a log's own directory")
        for log in logs:
            found.logs.append(Place(str(log), str(log if log == root else log.relative_to(root)), names.get(log)))
    return found


SET_ASIDE = {TRASH, ASIDE}
"""Directories within data whose logs nothing reads any more: they are looked at where they are named themselves."""


def _below(root: Path) -> Iterator[Path]:
    for directory, names, files in os.walk(root):
        if any(layout.parse_segment_name(name) is not None for name in (*names, *files)):
            names.clear()
            yield Path(directory)
        for each in SET_ASIDE & set(names):
            names.remove(each)


def _data_directories(root: Path, logs: Iterable[Path]) -> set[Path]:
    """The places that are `root`, contain it, or lie below it."""
    near = {root, *root.parents[:3], *(log.parents[2] for log in logs if len(log.parents) > 2)}
    return {each for each in near if any((each / name).exists() for name in (layout.NODE, METADATA, TOPICS))}


def _catalogue(data: Path) -> dict[Path, str]:
    """The directory and topic of every partition; empty if the catalogue's log is damaged, which it reports itself."""
    from ..clients.embedded.peek import Peek

    peek = Peek(str(data), Files())
    try:
        return {Path(path): name for path, name in peek.partitions().items()}
    except (Error, OSError):
        return {}
    finally:
        peek.close()


def _problems(data: Path) -> dict[str, Error]:
    """Why a node cannot open a data directory, apart from its logs."""
    try:
        identify(Files(), str(data))
        check_kinds(Files(), str(data))
        metadata_path(Files(), str(data))
    except Error as error:
        return {str(data): error}
    return {}
