"""Penstock's goals, path by path, at equal durability and as ratios of one run on two cores.

A row names its path in `stated` and has the bounds in figures; RESULTS.md opens with every path listed here, including
those without a measured row.
"""

from __future__ import annotations

STATED = {
    "produce": "produce 100 B, batched, durable: 5 times the best peer through its Python client,"
    " 80 % of bare ZeroMQ with the same encode",
    "consume": "consume 100 B, batched: 5 times the best peer as objects, 20 times as Arrow",
    "mapped": "consume 64 KiB records, mapped: 50 % of memcpy speed",
    "send to receive": "send to receive, 1 k/s and 10 k/s open loop, written, local:"
    " p50 and p99 at most half of the best peer",
    "durable record": "one durable record, closed loop, local: 1.5 times the machine's fdatasync p50 at the same pace",
    "embedded": "embedded append and read: ahead of every store that checks its data; 322 and 150 ns a record",
    "tail": "p99.9 at 50 % load, keeper and retention running: 3 times that of a bare Unix-socket ping-pong"
    " at the same rate",
    "tasks": "whole life of a task (put in durable, lease, ack durable), 100 B, batches of 100, two worker processes:"
    " 150,000 a second, ahead of every peer",
    "tasks, ack and lease": "the same with one request for the ack and the next lease: 300,000 a second",
    "tasks, one at a time": "whole life of one task after the other, one local client: ahead of beanstalkd with its"
    " binlog synced each time",
    "celery": "Celery's no-op tasks, their whole life: twice Celery on Redis that syncs each command,"
    " with the same workers",
    "tasks, memory behind": "a plain queue group far behind: under 1 MiB more than an idle one",
    "tasks, memory delayed": "10 million delayed records: under 400 MiB",
    "tasks, by backlog": "lease and ack: the same cost with 1,000 or 10 million records behind",
    "spark, batch": "Spark reads a batch of 100 B values, all columns: at least as fast as Parquet of the same rows,"
    " uncompressed; twice its own Kafka source",
    "spark, values": "the same, values alone: 4 M rows a second",
    "spark, stream": "Spark reads a stream in batches of 400,000 rows: 1 M rows a second",
    "spark, overhead": "a micro-batch of a few rows: at most what Spark's own Kafka source takes",
    "spark, idle": "a streaming query with nothing to read: under 3 % of a core",
    "spark, sink": "Spark writes keys and values, exactly once: 1 M rows a second, 80 % of at least once",
}
