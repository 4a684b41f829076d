"""Errors of the Spark side: invalid options, and lost records.

Contract: as in `storage/errors.py`: a message names the thing, the value, the limit and the way out. Spark wraps it in
errors of its own, so it must make sense alone. Needs no pyspark.
"""

from __future__ import annotations

from ..storage.errors import Error


class SparkError(Error):
    """Something about a DataFrame that reads or writes topics."""

    code = "spark"


class InvalidOption(SparkError, ValueError):
    """An option of a source or sink that is unknown, cannot be read, or does not go with the others."""

    code = "invalid_option"


class InvalidOffsets(SparkError, ValueError):
    """Offsets in a checkpoint, or in an option, that are not of this source or not of these topics."""

    code = "invalid_offsets"


class InvalidColumns(SparkError, ValueError):
    """Columns of a DataFrame that no record has, or that have another type there."""

    code = "invalid_columns"


class DataLoss(SparkError):
    """Records that a query was to read are gone: by retention, a power cut, damage, or because a topic was deleted."""

    code = "data_loss"


class MissingJava(SparkError):
    """No Java is new enough; the message says where Spark looked and how to install one."""

    code = "missing_java"


class StaleCheckpoint(SparkError):
    """A checkpoint that is older than what its query has written: going on from it would lose rows, or repeat them."""

    code = "stale_checkpoint"


class UnknownQuery(SparkError):
    """A task that Spark does not tell which micro-batch of which query it belongs to."""

    code = "unknown_query"


class PipelineFailed(SparkError):
    """A pipeline ended early. What it had finished stands; started again, it goes on there."""

    code = "pipeline_failed"


class TargetInUse(SparkError):
    """A target or a checkpoint that belongs to other work, or that another process is working on now."""

    code = "target_in_use"


class NoArchive(SparkError):
    """A directory that holds no archive of topics."""

    code = "no_archive"
