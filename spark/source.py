"""`format("penstock")`: the entry points Spark calls for readers and writers.

Contract: invalid options and schemas are refused here or where a reader is made, on the driver, before a task starts.
Nothing is opened here: Spark makes this many times, in processes of its own.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from .batch_reader import BatchReader, FilteringReader
from .connection import address
from .options import read_options
from .schema import declared
from .sink.writers import batch_writer, stream_writer
from .source_options import SourceOptions, batch_options, stream_options
from .stream_reader import StreamReader
from .workers import freeze


class PenstockSource(DataSource):
    """Topics as DataFrames, read and written, in batches and in streams."""

    @classmethod
    def name(cls) -> str:
        """The name in `format(...)`."""
        return "penstock"

    def schema(self) -> str:
        """Columns, unless the user gives them with `.schema(...)`."""
        return declared(read_options(SourceOptions, self.options))

    def reader(self, schema: StructType) -> BatchReader:
        """The reader for `spark.read`."""
        freeze()
        options = batch_options(self.options)
        kind = FilteringReader if options.push_filters else BatchReader
        return kind(address(options), options, schema)

    def streamReader(self, schema: StructType) -> StreamReader:
        """The reader for `spark.readStream`."""
        freeze()
        options = stream_options(self.options)
        return StreamReader(address(options), options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """The writer for `df.write`."""
        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        """For `df.writeStream`; `overwrite` is complete mode, whose results are appended like any others."""
        return stream_writer(self.options, schema)
