"""Apache Kafka in KRaft mode: one node that is broker and controller, confluent-kafka (librdkafka).

The jars come from Maven Central through perf/install-peers; PENSTOCK_PEERS names the directory when it is not
~/.cache/penstock-peers. Java gets a heap of 1 GiB; what it listens on is on 127.0.0.1.

Durability: `acks=all` for both. `durable` sets `flush.messages=1` on the topic: the broker calls fsync for every batch
it appends before it answers. `written` leaves that to the kernel, which is Kafka's default.

How it is driven: librdkafka batches in a thread of its own, outside of Python's lock.
- `produce_batch`: one call for thousands of values; `produce` takes the lock and its arguments apart for each.
- Batches of 1 MB and a linger of 5 ms, which is librdkafka's default. Five requests in flight, as in the Java client:
  librdkafka allows a million, and then messages that come one by one never become a batch while the broker is busy.
- Only failures are reported: a report for each message is a callback for each. No compression: values of one load are
  alike and would compress to nothing.
- Idempotence is off, librdkafka's default: with it each new producer waits half a second for its number (a timer of
  librdkafka), which would be most of a sample, and is as fast afterwards.
- A consumer is assigned its partition, without a group to join, and takes `consume` of ten thousand.
- A sender has no linger and one request in flight: what comes while it is under way is the next batch, which at
  `durable` saves fsyncs and halves the latency.
- A receiver polls for one message, which blocks on librdkafka's queue, and then takes what else is there: `consume`
  would wait until its count is full.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ..lab.installed import peers_directory
from . import servers
from .batches import in_batches
from .system import Receiver, Sender, System

MOST = 10_000  # messages of one call
QUEUE = 1_000_000  # messages that librdkafka holds; large ones are bounded by its default of 1 GiB
CLUSTER = "cGVuc3RvY2stcGVlcnMtMA"  # any 16 bytes in base64; a cluster has to have a name
HEAP = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:+ExplicitGCInvokesConcurrent")
"""The heap asked for, and the collector that Kafka's own start script chooses."""

SERVER = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers={host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
controller.listener.names=CONTROLLER
log.dirs={directory}/logs
message.max.bytes=8388608
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=-1
auto.create.topics.enable=false
"""
LOGGING = """
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=OUT
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c %m%n
"""
PRODUCER = {
    "acks": "all",
    "delivery.report.only.error": True,
    "batch.size": 1_000_000,
    "batch.num.messages": MOST,
    "max.in.flight.requests.per.connection": 5,
    "queue.buffering.max.messages": QUEUE,
    "message.max.bytes": 8 << 20,
    "log_level": 3,  # errors; a producer that begins before the node's coordinator is loaded warns and tries again
}
AT_ONCE = {"linger.ms": 0, "max.in.flight.requests.per.connection": 1}
CONSUMER = {
    "group.id": "lab",  # it must be set; an assigned partition joins no group
    "enable.auto.commit": False,
    "fetch.message.max.bytes": 8 << 20,
    "fetch.queue.backoff.ms": 10,  # a full queue would stop fetching for a second
    "topic.metadata.refresh.fast.interval.ms": 10,
    "log_level": 3,
}

Producer = Any  # confluent_kafka.Producer; confluent-kafka is there only with the extra `bench`
Consumer = Any


def jars() -> Path:
    """The path where perf/install-peers put Kafka."""
    return peers_directory() / "kafka"


def connector() -> list[Path]:
    """The jars of Spark's Kafka source, put beside Kafka by perf/install-peers; empty if absent."""
    return sorted(jars().with_name("spark-kafka").glob("*.jar"))


def connector_version() -> str:
    """Version of Spark's Kafka connector."""
    found = [match[1] for path in connector() if (match := re.match(r"spark-sql-kafka-.+-([\d.]+)\.jar", path.name))]
    return ", ".join(found) or "absent"


class Kafka(System):
    """One topic of one partition. What is durable is a setting of the topic, remembered for the node's lifetime."""

    name = "Apache Kafka"
    durabilities = frozenset({"durable", "written"})
    chunk = 200_000

    def absent(self) -> str:
        if not any(jars().glob("kafka_2.13-*.jar")):
            return f"Kafka's jars are not in {jars()}; {servers.INSTALL}."
        return servers.absence("java", "confluent_kafka")

    def versions(self) -> dict[str, str]:
        found = [match[1] for path in jars().iterdir() if (match := re.match(r"kafka_2\.13-(.+)\.jar", path.name))]
        java = re.search(r'version "(.+?)"', servers.said(servers.program("java"), "-version"))
        server = {"kafka": ", ".join(found), "java": java[1] if java else "unknown"}
        return server | servers.client_versions("confluent-kafka") | {"librdkafka": _librdkafka()}

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        port, controller = servers.free_port(), servers.free_port()
        configuration = directory / "server.properties"
        configuration.write_text(
            SERVER.format(host=servers.LOOPBACK, port=port, controller=controller, directory=directory)
            + {"durable": "log.flush.interval.messages=1\n", "written": ""}[durability]
        )
        (directory / "log4j2.properties").write_text(LOGGING)
        java = [servers.program("java"), *HEAP, "-cp", f"{jars()}/*"]
        java.append(f"-Dlog4j2.configurationFile={directory}/log4j2.properties")
        format_ = ["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(configuration), "--standalone"]
        with servers.running([*java, *format_], directory / "format.log") as formatting:
            if formatting.wait(servers.START_S):
                raise RuntimeError(f"Kafka could not format {directory}: {(directory / 'format.log').read_text()}")
        with servers.running([*java, "kafka.Kafka", str(configuration)], directory / "kafka.log", [port]):
            yield f"{servers.LOOPBACK}:{port}"

    def create(self, address: str, stream: str, partitions: int = 1) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic  # where its types say that it is

        admin = AdminClient(_servers(address))
        if _has_leader(admin, stream):
            admin.delete_topics([stream])[stream].result(servers.PATIENCE_S)
            servers.wait_until(lambda: not _has_leader(admin, stream), f"topic {stream} is gone")
        topic = NewTopic(stream, num_partitions=partitions, replication_factor=1)
        admin.create_topics([topic])[stream].result(servers.PATIENCE_S)
        # The controller has the topic; clients ask the broker, which hears of it a moment later.
        servers.wait_until(lambda: _has_leader(admin, stream), f"topic {stream} has a leader")

    def produce(self, address: str, stream: str, values: Sequence[bytes]) -> None:
        with _producer(address, {}) as producer:
            for batch in in_batches(values, MOST):
                _enqueue(producer, stream, batch)

    def consume(self, address: str, stream: str, count: int) -> Sequence[bytes]:
        with closing(_consumer(address, stream, start=0)) as consumer:
            values: list[bytes] = []
            while len(values) < count:
                values += _checked(consumer.consume(min(MOST, count - len(values)), servers.PATIENCE_S), stream)
            return values

    @contextmanager
    def sender(self, address: str, stream: str) -> Iterator[Sender]:
        with _producer(address, AT_ONCE) as producer:
            producer.list_topics(stream, servers.PATIENCE_S)  # connected, and it knows the partition's leader

            def send(values: Sequence[bytes]) -> None:
                _enqueue(producer, stream, values)
                producer.poll(0)  # raises what failed meanwhile

            yield send

    @contextmanager
    def acknowledged(self, address: str, stream: str) -> Iterator[Sender]:
        with _producer(address, AT_ONCE) as producer:
            producer.list_topics(stream, servers.PATIENCE_S)

            def send(values: Sequence[bytes]) -> None:
                _enqueue(producer, stream, values)
                _flush(producer)

            yield send

    @contextmanager
    def receiver(self, address: str, stream: str) -> Iterator[Receiver]:
        from confluent_kafka import TopicPartition

        with closing(_consumer(address, stream, start=None)) as consumer:
            # A position is known before anything is sent, so that "from now on" is from here on.
            _, end = consumer.get_watermark_offsets(TopicPartition(stream, 0), servers.PATIENCE_S)
            consumer.assign([TopicPartition(stream, 0, end)])

            def receive() -> Sequence[bytes]:
                first = consumer.poll(servers.PATIENCE_S)
                more = consumer.consume(MOST, 0)
                return _checked([first, *more] if first else [], stream)

            yield receive


def _has_leader(admin: Any, stream: str) -> bool:
    topic = admin.list_topics(timeout=servers.PATIENCE_S).topics.get(stream)
    return topic is not None and any(partition.leader >= 0 for partition in topic.partitions.values())


def _servers(address: str) -> dict[str, Any]:
    return {"bootstrap.servers": address}


@contextmanager
def _producer(address: str, more: Mapping[str, object]) -> Iterator[Producer]:
    """A producer; all its records are acknowledged when the block ends."""
    from confluent_kafka import Producer

    producer = Producer({**_servers(address), **PRODUCER, "on_delivery": _raise, **more})
    try:
        yield producer
        _flush(producer)
    finally:
        producer.close()


def _consumer(address: str, stream: str, start: int | None) -> Consumer:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({**_servers(address), **CONSUMER})
    if start is not None:
        consumer.assign([TopicPartition(stream, 0, start)])
    return consumer


def _enqueue(producer: Producer, stream: str, values: Sequence[bytes]) -> None:
    """Hand values to librdkafka; wait for room when it holds as many as it may."""
    messages = [{"value": value} for value in values]
    while messages:
        try:
            queued = producer.produce_batch(stream, messages, partition=0)
        except BufferError:
            queued = 0
        messages = messages[queued:]
        if messages:
            producer.poll(0.01)


def _flush(producer: Producer) -> None:
    if left := producer.flush(servers.PATIENCE_S):
        raise TimeoutError(f"Kafka has not acknowledged {left} messages in {servers.PATIENCE_S:.0f} s")


def _raise(error: object, message: object) -> None:
    raise RuntimeError(f"Kafka refused a message: {error}")


def _checked(messages: Sequence[Any], stream: str) -> Sequence[bytes]:
    if not messages:
        raise TimeoutError(f"nothing came on {stream} for {servers.PATIENCE_S:.0f} s")
    for message in messages:
        if message.error():
            raise RuntimeError(f"Kafka: {message.error()}")
    return [message.value() for message in messages]


def _librdkafka() -> str:
    from confluent_kafka import libversion

    return libversion()[0]


SYSTEM = Kafka()
