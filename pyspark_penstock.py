"""Lets Spark find penstock: Spark imports top-level modules named `pyspark_*` and takes their DefaultSource.

Contract: loads whenever pyspark does. A module of such a name that fails to load would hide every other one.
"""

from __future__ import annotations

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
