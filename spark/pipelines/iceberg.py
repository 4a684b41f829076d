"""An archive as an Iceberg table, through `pyiceberg`: no Java, no jar.

Idea: executors wrote the files; one commit adds them and stores the pipeline's batch in the table's properties: so a
batch is added once. The catalog is a SQLite file beside the data; others read the table through it, or by its newest
metadata file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...storage.errors import MissingLibrary, way_to_install
from .archive_files import WITH_TOPIC
from .archive_layout import DataFile
from .identity import OWN, PipelineIdentity

try:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.transforms import HourTransform, IdentityTransform
except ModuleNotFoundError:
    raise MissingLibrary(f"Iceberg tables need pyiceberg: {way_to_install('iceberg')}") from None

NAMESPACE = "penstock"
NAME = "penstock.archive"
CATALOG = "catalog.db"
"""Below `OWN`."""


class IcebergFiles:
    """The Iceberg table in a directory."""

    with_topic = True

    def __init__(self, directory: Path, identity: PipelineIdentity) -> None:
        self._directory = directory.absolute()
        self._property = f"penstock.batch.{identity.id}"
        self._location = f"file://{self._directory}"  # not a URI: nothing is escaped
        catalog = self._directory / OWN / CATALOG
        catalog.parent.mkdir(parents=True, exist_ok=True)
        self._catalog = SqlCatalog(NAMESPACE, uri=f"sqlite:///{catalog}", warehouse=self._location)
        if not self._catalog.table_exists(NAME):
            self._create()

    def _create(self) -> None:
        self._catalog.create_namespace_if_not_exists(NAMESPACE)
        with (
            self._catalog.create_table_transaction(NAME, WITH_TOPIC, self._location) as making,
            making.update_spec() as spec,
        ):
            spec.add_field("topic", IdentityTransform(), "topic")
            spec.add_field("timestamp", HourTransform(), "timestamp_hour")

    def add(self, batch: int, files: Sequence[DataFile]) -> None:
        """Commit them, unless the table has this batch."""
        if not files:
            return
        table = self._catalog.load_table(NAME)
        if int(table.properties.get(self._property, -1)) >= batch:
            return
        paths = [f"{self._location}/{file.path}" for file in files]
        with table.transaction() as change:
            change.add_files(paths, check_duplicate_files=False)
            change.set_properties({self._property: str(batch)})

    def files(self) -> list[Path]:
        """The last committed batch."""
        planned = self._catalog.load_table(NAME).scan().plan_files()
        return sorted(Path(task.file.file_path.removeprefix("file://")) for task in planned)
