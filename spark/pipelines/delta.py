"""An archive as a Delta table, through `deltalake`: no Java, no jar.

Idea: executors wrote the files; a commit adds them with their partitions and statistics, and with (pipeline, batch) as
an application transaction, which the table remembers: so a batch is added once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from ...storage.errors import MissingLibrary, way_to_install
from .archive_files import SCHEMA
from .archive_layout import DataFile
from .identity import PipelineIdentity

try:
    from deltalake import CommitProperties, DeltaTable, Schema, Transaction
    from deltalake.transaction import AddAction
except ModuleNotFoundError:
    raise MissingLibrary(f"Delta tables need deltalake: {way_to_install('delta')}") from None

BY = ["topic", "date", "hour"]


class DeltaFiles:
    """The Delta table in a directory."""

    with_topic = False

    def __init__(self, directory: Path, identity: PipelineIdentity) -> None:
        self._directory = directory
        self._id = identity.id
        self._schema = Schema.from_arrow(schema())
        if not DeltaTable.is_deltatable(str(directory)):
            DeltaTable.create(str(directory), self._schema, partition_by=BY)

    def add(self, batch: int, files: Sequence[DataFile]) -> None:
        """Commit them, unless the table has this batch."""
        if not files:
            return
        table = DeltaTable(str(self._directory))
        known = table.transaction_version(self._id)
        if known is not None and known >= batch:
            return
        table.create_write_transaction(
            [_action(self._directory, file) for file in files], "append", self._schema, BY,
            commit_properties=CommitProperties(app_transactions=[Transaction(self._id, batch)]),
        )  # fmt: skip

    def files(self) -> list[Path]:
        """The last committed batch."""
        return sorted(
            self._directory / uri.removeprefix("file://") for uri in DeltaTable(str(self._directory)).file_uris()
        )


def schema() -> pa.Schema:
    """The table's schema."""
    return pa.schema([*SCHEMA, ("topic", pa.string()), ("date", pa.date32()), ("hour", pa.int32())])


def _action(directory: Path, file: DataFile) -> AddAction:
    written_ms = (directory / file.path).stat().st_mtime_ns // 1_000_000
    partition = {"topic": file.topic, "date": str(file.when.date()), "hour": str(file.when.hour)}
    return AddAction(file.path, file.size_bytes, partition, written_ms, True, json.dumps(_statistics(file)))


def _statistics(file: DataFile) -> dict[str, object]:
    """Statistics by which readers skip files. Times are rounded outwards to milliseconds, Delta's unit."""
    return {
        "numRecords": file.records,
        "minValues": {"partition": file.partition, "offset": file.first, "timestamp": _time(file.from_us // 1000)},
        "maxValues": {"partition": file.partition, "offset": file.last, "timestamp": _time(-(-file.to_us // 1000))},
        "nullCount": {"partition": 0, "offset": 0, "timestamp": 0},
    }


def _time(time_ms: int) -> str:
    time = pa.scalar(time_ms, pa.timestamp("ms", "UTC")).as_py()
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
