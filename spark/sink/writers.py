"""Chooses the writer of a write, after all checks that are possible before its tasks start.

Contract: raises on the driver, with a sentence for the user, for invalid options and columns, for a missing topic, and
for a broker that does not answer.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType

from ..connection import address, client_of
from ..errors import InvalidOption
from .columns import layout_of
from .direct import DirectStreamWriter, DirectWriter
from .options import EXACTLY_ONCE, SinkOptions, sink_options
from .staged import StagedStreamWriter, StagedWriter


def batch_writer(given: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """The writer of `df.write`. Raises InvalidOption, InvalidColumns, UnknownTopic, TimedOut."""
    options = sink_options(given, streaming=False)
    if overwrite:
        raise InvalidOption(
            'mode("overwrite") is not possible: records that a topic has stay until its retention takes them; write '
            'with mode("append"), or delete the topic and create it again'
        )
    layout = layout_of(schema, options.topic)
    options = reached(options)
    return StagedWriter(options, layout) if options.delivery == EXACTLY_ONCE else DirectWriter(options, layout)


def stream_writer(given: Mapping[str, str], schema: StructType) -> DataSourceStreamArrowWriter:
    """The writer of `df.writeStream`, in append mode and in complete mode. Raises as `batch_writer`."""
    options = sink_options(given, streaming=True)
    layout = layout_of(schema, options.topic)
    options = reached(options)
    if options.delivery == EXACTLY_ONCE:
        return StagedStreamWriter(options, layout, given.get("checkpointlocation", ""))
    return DirectStreamWriter(options, layout)


def reached(options: SinkOptions) -> SinkOptions:
    """The options with the broker's address in them, once it says that it knows the topic and may commit so."""
    url = address(options)
    client = client_of(url, options.timeout_s)
    if options.topic:
        client.topic(options.topic)
    if options.transaction:
        client.transaction_epoch(options.transaction)
    return msgspec.structs.replace(options, url=url, url_file="")
