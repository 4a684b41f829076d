"""The table over an archive's files: none, a Delta table, or an Iceberg table.

Contract: `add` makes the files of a batch, already in place, part of the table, all or none. Repeated with the last
batch, it does nothing. Tables are in the directory of the archive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, get_args

from ...clients.errors import InvalidArgument
from .archive_layout import DataFile

if TYPE_CHECKING:
    from .identity import PipelineIdentity

TableFormat = Literal["parquet", "delta", "iceberg"]
FORMATS: tuple[TableFormat, ...] = get_args(TableFormat)


class Table(Protocol):
    """An archive as others see it."""

    with_topic: bool
    """Whether files have a column `topic`, because readers do not look at paths."""

    def add(self, batch: int, files: Sequence[DataFile]) -> None:
        """Make these files part of it, as batch number `batch`."""
        ...

    def files(self) -> list[Path]:
        """The archive's data files."""
        ...


class PlainFiles:
    """Parquet files in directories: what lies there is part of it."""

    with_topic = False

    def __init__(self, directory: Path, identity: PipelineIdentity) -> None:
        self._directory = directory

    def add(self, batch: int, files: Sequence[DataFile]) -> None:
        """Do nothing: the files are in place."""

    def files(self) -> list[Path]:
        """The archive's data files."""
        return sorted(self._directory.glob("topic=*/date=*/hour=*/*.parquet"))


def open_table(form: TableFormat, directory: Path, identity: PipelineIdentity) -> Table:
    """The table of an archive, made now if it is new. Raises MissingLibrary."""
    return opener(form)(directory, identity)


def opener(form: TableFormat) -> Callable[[Path, PipelineIdentity], Table]:
    """The constructor of a table format, imported here: each needs an extra. Raises InvalidArgument, MissingLibrary."""
    if form not in FORMATS:
        raise InvalidArgument(f"format is {form!r}, and has to be one of {', '.join(FORMATS)}")
    if form == "delta":
        from .delta import DeltaFiles

        return DeltaFiles
    if form == "iceberg":
        from .iceberg import IcebergFiles

        return IcebergFiles
    return PlainFiles
