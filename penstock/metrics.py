"""The metrics of a broker: what one look at it becomes.

Idea: the broker counts in plain integers, and answers `stats`, topics, groups and queues as to any client; the tables
here name what Prometheus sees of it.

Contract: there is at most one series per topic, group and queue, `most` of each; with `partitions`, also one of each
partition of those topics. What is left out is counted. A look without an answer of the broker says that it is down.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from .broker.processes import Usage
from .clients.descriptions import Group, Topic, age_s
from .clients.queues.descriptions import Queue
from .gateway.exposition import Labels, Metric
from .gateway.refused import metric_of

MICRO = 1e-6

T = TypeVar("T")


class Look(Struct, frozen=True, kw_only=True):
    """Everything one scrape found. Without an answer of the broker, only the processes."""

    now: datetime
    took_s: float
    stats: Mapping[str, Any] | None = None
    topics: Sequence[Topic] = ()
    groups: Sequence[Group] = ()
    queues: Sequence[Queue] = ()
    usage: Mapping[str, Usage] = {}
    refused: Mapping[str, int] = {}
    disk_free_bytes: int | None = None


class _Counted(NamedTuple):
    """A counter of `stats`, and its metric. `label`: its values are by this label."""

    counter: str
    metric: str
    kind: str
    about: str
    label: str = ""
    scale: float = 1.0


COUNTED = [
    _Counted("requests", "requests_total", "counter", "Requests taken."),
    _Counted("failures", "failures_total", "counter", "Requests answered with an error."),
    _Counted("requests.by_kind", "requests_by_kind_total", "counter", "Requests that connections sent.", "kind"),
    _Counted(
        "requests.us", "request_seconds", "histogram",
        "From arrival to the answer, with its wait for records; of one request in 16 of each kind.", "kind", MICRO,
    ),
    _Counted("produce.batches", "produced_batches_total", "counter", "Batches accepted from producers."),
    _Counted("produce.records", "produced_records_total", "counter", "Records accepted from producers."),
    _Counted("produce.bytes", "produced_bytes_total", "counter", "Bytes of batches accepted from producers."),
    _Counted("lending.lent", "logs_lent", "gauge", "Partitions that producers append to by themselves now."),
    _Counted("lending.given", "logs_lent_total", "counter", "Grants of a log to a producer."),
    _Counted("lending.recalled", "logs_recalled_total", "counter", "Grants that ended."),
    _Counted("lending.borrowed", "logs_borrowed_total", "counter", "Appends of the broker to logs that were lent."),
    _Counted("lending.refused", "lent_logs_refused_total", "counter", "Grants ended by a batch that could not stand."),
    _Counted("lending.batches", "direct_batches_total", "counter", "Batches that producers appended by themselves."),
    _Counted("lending.records", "direct_records_total", "counter", "Records that producers appended by themselves."),
    _Counted("produce.batch_bytes", "produced_batch_bytes", "histogram", "Sizes of batches; of one in 16."),
    _Counted("batches.in_flight", "batches_in_flight", "gauge", "Batches appended and not committed yet."),
    _Counted("received.bytes", "received_bytes_total", "counter", "Bytes of batches that came over connections."),
    _Counted("quota.pauses", "quota_pauses_total", "counter", "Times that a connection sat out for a quota."),
    _Counted("quota.refused", "quota_refused_total", "counter", "Requests that were refused for a quota."),
    _Counted("received.hostile", "invalid_messages_total", "counter", "Messages that broke the protocol."),
    _Counted("sent.bytes", "sent_bytes_total", "counter", "Bytes of batches sent over connections."),
    _Counted("answers.dropped", "dropped_answers_total", "counter", "Answers whose client was gone or did not read."),
    _Counted("deliveries", "deliveries_total", "counter", "Deliveries sent to consumers; mapped ones need none."),
    _Counted(
        "deliver.age_us", "delivery_age_seconds", "histogram",
        "From append to delivery of the oldest batch; of one delivery in 16.", "", MICRO,
    ),
    _Counted("turns", "turns_total", "counter", "Turns of the broker's loop."),
    _Counted("turns.us", "turn_seconds", "histogram", "A turn, without the wait; of one turn in 16.", "", MICRO),
    _Counted("sync.us", "sync_seconds", "histogram", "Syncs by the broker itself, one log each.", "", MICRO),
    _Counted("keeper.round_us", "keeper_round_seconds", "histogram", "Rounds of syncs by the keeper.", "", MICRO),
    _Counted("partitions", "partitions", "gauge", "Partitions there are."),
    _Counted("partitions.poisoned", "partitions_poisoned", "gauge", "Partitions that a failed sync closed to writers."),
    _Counted("partitions.damaged", "partitions_damaged", "gauge", "Partitions with damage."),
    _Counted("topics", "topics", "gauge", "Topics there are."),
    _Counted("fetch.waiting", "fetches_waiting", "gauge", "Reads that wait for records."),
    _Counted("lease.waiting", "leases_waiting", "gauge", "Requests of workers that wait for tasks."),
    _Counted("tasks.waiting", "results_waiting", "gauge", "Callers that wait for results of tasks."),
    _Counted("sessions.open", "sessions", "gauge", "Consumers."),
    _Counted("sessions.expired", "sessions_expired_total", "counter", "Consumers not heard of for too long."),
    _Counted("sessions.out_of_credit", "sessions_out_of_credit", "gauge", "Consumers sent all they asked for."),
    _Counted("sessions.blocked", "sessions_blocked", "gauge", "Consumers whose connection is full."),
    _Counted("schedules.fired", "schedules_fired_total", "counter", "Records that schedules appended."),
    _Counted("schedules.coalesced", "schedules_coalesced_total", "counter", "Times at which they added none."),
    _Counted("outbox.waiting", "outbox_waiting", "gauge", "Copies on their way to other partitions."),
    _Counted("barriers.most_bytes", "barriers_most_bytes", "gauge", "Of the partition whose barriers have the most."),
    _Counted("barriers.fired", "barriers_fired_total", "counter", "Callbacks appended since their tasks ended."),
    _Counted("barriers.expired", "barriers_expired_total", "counter", "Barriers whose time was over before."),
    _Counted("barriers.deleted", "barriers_deleted_total", "counter", "Barriers that were deleted."),
    _Counted("barriers.untold", "barriers_untold", "gauge", "Ends of tasks that their barriers have yet to hear."),
    _Counted("barriers.stuck", "barriers_stuck", "gauge", "Partitions of barriers that cannot be told of ends."),
    _Counted("outbox.stuck", "outbox_stuck", "gauge", "Copies that cannot go on."),
    _Counted("stages.open", "stages_open", "gauge", "Staged records of open transactions, in stages."),
    _Counted("stages.bytes", "stages_bytes", "gauge", "Size of staged records."),
    _Counted("stages.stuck", "stages_stuck", "gauge", "Stages whose publishing cannot go on."),
    _Counted("transactions.decided", "transactions_decided_total", "counter", "Commits of transactions decided."),
    _Counted("transactions.unfinished", "transactions_unfinished", "gauge", "Commits not published in full yet."),
    _Counted("snapshots.failed", "snapshots_failed_total", "counter", "Snapshots of state that were not written."),
    _Counted("retention.failed", "retention_failed_total", "counter", "Looks at logs that met files they cannot read."),
    _Counted("clock.jumps", "clock_jumps_total", "counter", "Jumps of the clock that the broker followed."),
    _Counted("clock.ignored_us", "clock_ignored_seconds", "gauge", "The system clock is ahead by so much.", "", MICRO),
    _Counted("clock.ahead_us", "clock_ahead_seconds", "gauge", "The system clock is behind by so much.", "", MICRO),
    _Counted("scrub.rotten", "scrub_rotten_logs", "gauge", "Logs whose closed segments do not verify."),
    _Counted("connections.descriptors", "connection_descriptors", "gauge", "Descriptors of connections."),
    _Counted("connections.most", "connection_descriptors_most", "gauge", "The most there may be."),
    _Counted("connections.refused", "connections_refused_total", "counter", "Connections refused."),
    _Counted("access.refused", "access_refused_total", "counter", "Connections refused: their key is no user's."),
    _Counted("access.forbidden", "access_forbidden_total", "counter", "Requests that grants forbid."),
]  # fmt: skip

CLUSTERED = [
    _Counted("cluster.leads", "cluster_leads", "gauge", "1 while this node serves as leader."),
    _Counted("cluster.term", "cluster_term", "gauge", "The term that this node is in; it rises at each election."),
    _Counted("cluster.leader", "cluster_leader", "gauge", "The node that leads, as far as this one knows; 0 for none."),
    _Counted("cluster.last", "cluster_last_entry", "gauge", "The last entry of the order that this node has."),
    _Counted("cluster.committed", "cluster_committed_entry", "gauge", "The last one that a majority has."),
    _Counted("cluster.applied", "cluster_applied_entry", "gauge", "The last one that is applied here."),
    _Counted("cluster.differing", "cluster_differing_logs", "gauge", "Logs that nodes add up to different states."),
    _Counted("cluster.peers_reachable", "cluster_peers_reachable", "gauge", "Nodes that this one reaches."),
    _Counted("cluster.greetings_refused", "cluster_greetings_refused_total", "counter", "Nodes refused: see the log."),
]
"""Of a member of a cluster."""

_USAGE: list[tuple[str, str, str, Callable[[Usage], float]]] = [
    ("process_cpu_seconds_total", "counter", "Processor time used.", attrgetter("cpu_s")),
    ("process_resident_bytes", "gauge", "Memory resident.", attrgetter("resident_bytes")),
    ("process_descriptors", "gauge", "Open descriptors.", attrgetter("descriptors")),
    ("process_descriptors_most", "gauge", "The most there may be.", attrgetter("most_descriptors")),
    ("process_start_seconds", "gauge", "Start, seconds since 1970.", attrgetter("started_s")),
]

_TOPIC: list[tuple[str, str, str, Callable[[Topic], float]]] = [
    ("topic_records", "gauge", "Records that can be read.", attrgetter("records")),
    ("topic_bytes", "gauge", "Bytes on disk.", attrgetter("size_bytes")),
    (
        "topic_appended_total", "counter", "Records ever appended: ends of partitions.",
        attrgetter("appended"),
    ),
    (
        "topic_partitions_not_ok", "gauge", "Partitions that are poisoned, damaged or closed.",
        lambda each: sum(p.state != "ok" for p in each.partitions),
    ),
]  # fmt: skip

_GROUP: list[tuple[str, str, str, Callable[[Group], float]]] = [
    ("group_lag", "gauge", "Records to commit that can be read.", attrgetter("lag")),
    ("group_members", "gauge", "Members.", lambda each: len(each.members)),
    ("group_removed", "gauge", "Records removed before they were committed.", attrgetter("removed")),
]  # fmt: skip

_QUEUE: list[tuple[str, str, str, Callable[[Queue], float]]] = [
    ("queue_ready", "gauge", "Tasks that could be leased.", attrgetter("ready")),
    ("queue_in_flight", "gauge", "Tasks that workers have.", attrgetter("in_flight")),
    ("queue_delayed", "gauge", "Tasks delayed by their producer.", attrgetter("delayed")),
    ("queue_retrying", "gauge", "Tasks that failed and are retried.", attrgetter("retrying")),
    ("queue_dead", "gauge", "Dead-lettered tasks.", attrgetter("dead_lettered")),
    ("queue_paused", "gauge", "1 while the queue is paused.", lambda each: int(each.paused_until is not None)),
]


def metrics(look: Look, *, most: int, partitions: bool = False) -> list[Metric]:
    """The metrics of one look."""
    found = [
        _one("up", "gauge", "1 if the broker answered.", int(look.stats is not None)),
        _one("scrape_seconds", "gauge", "Time that it took to ask the broker.", look.took_s),
        *_series(_USAGE, look.usage.items(), lambda each: (("process", each[0]),), lambda each: each[1]),
    ]
    if look.disk_free_bytes is not None:
        found.append(_one("disk_free_bytes", "gauge", "Free on the file system of the data.", look.disk_free_bytes))
    found.append(metric_of(look.refused))
    if look.stats is not None:
        found += _counters(look.stats)
    topics, groups, queues = look.topics[:most], look.groups[:most], look.queues[:most]
    found += _series(_TOPIC, topics, lambda each: (("topic", each.name),))
    found += _series(_GROUP, groups, _of_group)
    found.append(_ages("group_oldest_seconds", "Age of the oldest record to commit.", groups, look.now))
    found += _series(_QUEUE, queues, _of_group)
    found.append(_ages("queue_oldest_seconds", "Age of the oldest task not finished.", queues, look.now))
    if partitions:
        found += _partitions(topics, groups, most)
    left_out = sum(len(all_) - len(some) for all_, some in
                   ((look.topics, topics), (look.groups, groups), (look.queues, queues)))  # fmt: skip
    found.append(
        _one("left_out", "gauge", "Topics, groups and queues without series, for there are too many.", left_out)
    )
    return found


def _one(name: str, kind: str, about: str, value: float) -> Metric:
    return Metric(f"penstock_{name}", kind, about, [((), value)])


def _counters(stats: Mapping[str, Any]) -> list[Metric]:
    found: list[Metric] = []
    for row in (*COUNTED, *CLUSTERED):
        value = stats.get(row.counter)
        if value is None:
            continue  # of an older broker, or one that is alone
        samples = [(((row.label, name),), each) for name, each in value.items()] if row.label else [((), value)]
        if row.kind != "histogram":
            samples = [(labels, each * row.scale if row.scale != 1.0 else each) for labels, each in samples]
        found.append(Metric(f"penstock_{row.metric}", row.kind, row.about, samples, row.scale))
    return found


def _series(
    table: Sequence[tuple[str, str, str, Callable[[Any], float]]],
    things: Any,
    labels: Callable[[Any], Labels],
    value: Callable[[Any], Any] = lambda each: each,
) -> list[Metric]:
    named = [(labels(each), value(each)) for each in things]
    return [
        Metric(f"penstock_{name}", kind, about, [(of, measure(each)) for of, each in named])
        for name, kind, about, measure in table
    ]


def _of_group(each: Group | Queue) -> Labels:
    return ("topic", each.topic), ("group", each.name)


def _ages(name: str, about: str, things: Sequence[Group] | Sequence[Queue], now: datetime) -> Metric:
    """0 where there is nothing to do."""
    samples = [(_of_group(each), age_s(each.oldest, now) or 0.0) for each in things]
    return Metric(f"penstock_{name}", "gauge", about, samples)


def _partitions(topics: Sequence[Topic], groups: Sequence[Group], most: int) -> list[Metric]:
    """The bounds of partitions, and where groups are in them: `most` of each."""
    places = [
        ((("topic", topic.name), ("partition", str(p.partition))), p) for topic in topics for p in topic.partitions
    ]
    cursors = [((*_of_group(group), ("partition", str(p.partition))), p) for group in groups for p in group.partitions]
    del places[most:], cursors[most:]
    return [
        Metric("penstock_partition_first", "gauge", "First offset.", [(of, p.first) for of, p in places]),
        Metric("penstock_partition_end", "gauge", "End offset, committed.", [(of, p.end) for of, p in places]),
        Metric("penstock_partition_bytes", "gauge", "Bytes on disk.", [(of, p.size_bytes) for of, p in places]),
        Metric("penstock_group_partition_lag", "gauge", "Records to commit.", [(of, p.lag) for of, p in cursors]),
    ]
