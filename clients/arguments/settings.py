"""The settings of topics, queue groups and producers as callers give them: their names and types.

Idea: keyword arguments of verbs, typed for editors and checkers. Sizes may be text like "64MB", times text like "7d" or
a timedelta; `quantities.setting_values` makes numbers of both. Which values are allowed is the broker's business.

Contract: the same names as the broker's own settings (broker/engine/tables) and as the arguments of `producer`, which
tests compare.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from .quantities import Duration, Size


class TopicOptions(TypedDict, total=False):
    """What `create_topic` and `alter_topic` take; all are optional."""

    commit: Literal["durable", "written"]
    segment_bytes: Size
    retention_s: Duration | None
    retention_bytes: Size | None
    retention_records: int | None
    retain_unread: bool
    codec: Literal["none", "lz4", "zstd"]
    max_record_bytes: Size
    partitioner: Literal["xxh3", "murmur2"]
    dedup: Literal["drop", "replace", "extend"]
    dedup_window_s: Duration


class QueueOptions(TypedDict, total=False):
    """What `set_queue` takes; all are optional."""

    lease_s: Duration | None
    lease_max_s: Duration
    max_attempts: int | None
    backoff_s: Duration
    backoff_max_s: Duration
    jitter: float
    order: Literal["none", "key"]
    fair: bool
    key_concurrency: int | None
    key_rate_per_s: float | None
    rate: str | None
    rate_burst: int | None
    look_ahead: int
    dead_retention_s: Duration
    dead_topic: str
    carry_after_s: Duration
    keep_finished_s: Duration | None


class ProducerSettings(TypedDict, total=False):
    """What `client.producer` takes beside the topic and the serializer; all are optional."""

    name: str | None
    codec: str | None
    window_bytes: Size
    direct: bool
