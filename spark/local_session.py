"""Creates a Spark session on this machine with working defaults.

Idea: plain settings, which the caller may override, prevent the failures of a first local session: workers of another
Python, no Java, two hundred shuffle partitions, ports open to the network.
Contract: reports anything missing before Spark is touched. Spark listens on the loopback only.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING

from . import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",  # the Python side costs by the batch
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),  # below that Spark measures headers at each row
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # the type that other readers expect
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}
"""Settings of a session, before those of the caller."""

SOCKET_DIRECTORY_BYTES = 60
"""The longest name of a directory in which Spark's sockets, of 43 bytes, have names that a socket may have."""


def session(
    name: str = "penstock", *, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A Spark session that knows the format `penstock`; the one that runs already, if there is one.

    Args:
        master: "local[*]" works on all cores of this machine, "local[4]" on four.
        settings: any of Spark's, by their full names, before those that a session has by itself.

    Raises: MissingJava, MissingLibrary.
    """
    os.environ["JAVA_HOME"] = str(java.check())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run whatever python3 is first on the PATH
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for setting, value in {**PLAIN, **over_unix_sockets(tempfile.gettempdir()), **(settings or {})}.items():
        builder = builder.config(setting, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Make `format("penstock")` known to this session."""
    from .source import PenstockSource

    spark.dataSource.register(PenstockSource)


def over_unix_sockets(directory: str) -> dict[str, str]:
    """Settings by which Spark talks to Python over sockets in a directory; none where its name is too long for that.

    Over TCP each task waits some 40 ms for a delayed acknowledgement.
    """
    if len(os.fsencode(directory)) > SOCKET_DIRECTORY_BYTES:
        return {}
    return {"spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": directory}
