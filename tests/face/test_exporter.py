"""Metrics of a served broker, as Prometheus scrapes them."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import penstock
import pytest
from penstock.broker.rights import Grant, Principal
from penstock.clients.aio.client import AsyncClient
from penstock.clients.aio.driver import AsyncDriver
from penstock.clients.descriptions import Group, Topic
from penstock.clients.opening import open_connection
from penstock.clients.queues.descriptions import Queue
from penstock.errors import InsecureListen
from penstock.exporter import Exporter, ExporterConfig, visible
from penstock.metrics import COUNTED, Look
from penstock.scrape_door import CONNECTIONS, REQUEST_BYTES
from support.servers import end_of

from .conftest import Cli, Served, serve

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as sockets:
        more = ["--metrics", "tcp://127.0.0.1:0", "--set", "metrics_partitions=true", "--set", "metrics_most=3"]
        started = serve(tmp_path_factory.mktemp("data"), sockets, *more)
        try:
            yield started
        finally:
            assert started.stop() == 0


@pytest.fixture
def client(served: Served) -> Iterator[penstock.Client]:
    with penstock.connect(served.unix) as client:
        yield client
        for topic in client.topics():
            client.delete_topic(topic.name)


def ask(served: Served, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    """The status and body of a request to the exporter."""
    connection = http.client.HTTPConnection("127.0.0.1", port(served), timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def port(served: Served) -> int:
    return int(served.ready["metrics"][0].rpartition(":")[2])


def parsed(text: str) -> Samples:
    """Samples by name and labels; every line is one, or says what a metric is."""
    found: Samples = {}
    for line in text.splitlines():
        if not line.startswith("# "):
            match = SAMPLE.match(line)
            assert match, line
            found.setdefault(match[1], {})[tuple(LABEL.findall(match[2] or ""))] = float(match[3])
    return found


def scrape(served: Served, until: Any = lambda samples: True) -> Samples:
    """A scrape that has what is asked for: an answer is a second old at most."""
    while not until(samples := parsed(ask(served)[1])):
        pass
    return samples


def test_what_clients_do_is_there(served, client):
    client.create_topic("flights", partitions=2)
    with client.producer("flights") as producer:
        for number in range(20):
            producer.send(b"x" * 100, partition=number % 2)
    with client.consumer("flights", group="report", delivery="control") as consumer:
        for taken, _ in enumerate(consumer, 1):
            if taken == 5:
                break
        consumer.commit()
    client.set_queue("flights", "mail")
    samples = scrape(
        served, lambda each: ((("topic", "flights"), ("group", "mail"))) in each.get("penstock_queue_ready", {})
    )
    group = (("topic", "flights"), ("group", "report"))
    assert samples["penstock_up"] == {(): 1}
    assert samples["penstock_topic_appended_total"] == {(("topic", "flights"),): 20}
    assert samples["penstock_group_lag"] == {group: 15}
    assert 0 < samples["penstock_group_oldest_seconds"][group] < 120
    assert sum(samples["penstock_group_partition_lag"].values()) == 15
    assert samples["penstock_partition_end"] == {(("topic", "flights"), ("partition", str(n))): 10 for n in (0, 1)}
    assert samples["penstock_produced_records_total"][()] >= 20
    assert samples["penstock_requests_by_kind_total"][(("kind", "Produce"),)] >= 20
    assert samples["penstock_request_seconds_count"][(("kind", "Produce"),)] >= 2
    assert samples["penstock_sync_seconds_count"][()] + samples["penstock_keeper_round_seconds_count"][()] > 0
    assert samples["penstock_sent_bytes_total"][()] > 5 * 100
    assert samples["penstock_delivery_age_seconds_count"][()] >= 1
    assert set(samples["penstock_process_cpu_seconds_total"]) == {
        (("process", name),) for name in ("supervisor", "broker", "keeper", "exporter")
    }
    assert all(each > 1 << 20 for each in samples["penstock_process_resident_bytes"].values())


def test_every_counter_of_the_table_is_a_metric_of_its_kind(served):
    text = ask(served)[1]
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    assert {f"penstock_{each.metric}": each.kind for each in COUNTED}.items() <= kinds.items()
    assert all(name.endswith("_total") == (kind == "counter") for name, kind in kinds.items())


def test_every_number_of_the_broker_is_a_metric_or_known_to_be_none(served, client):
    without = {f"{name}.stuck_because" for name in ("outbox", "stages", "barriers")}
    without |= {"ends.waiting", "stages.dropped", "stages.publishing"}
    assert set(client.stats()) - without == {each.counter for each in COUNTED}


def test_buckets_are_cumulative_and_end_at_all(served, client):
    samples = scrape(served)
    buckets = samples["penstock_turn_seconds_bucket"]
    assert list(buckets.values()) == sorted(buckets.values())
    assert [labels[0][1] for labels in buckets][-2:] == ["67.1089", "+Inf"]
    assert list(buckets.values())[-1] == samples["penstock_turn_seconds_count"][()]


def test_why_the_broker_does_not_answer_is_said_once(tmp_path, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("penstock.exporter.say", said.append)

    async def scraped() -> bytes:
        connection = open_connection(f"unix://{tmp_path}/none", timeout=0.1, name="exporter", clock=time.monotonic)
        async with AsyncClient(AsyncDriver(connection)) as client:
            gone = f"{tmp_path}/gone"  # a data directory that is not mounted
            exporter = Exporter(client, ExporterConfig(url=f"unix://{tmp_path}/none", metrics=(), data=gone))
            await exporter._look()
            return await exporter.scrape()

    assert b"penstock_up 0" in asyncio.run(scraped())
    assert len(said) == 1
    assert said[0].startswith("metrics lack what the broker counts: ")


def test_promtool_finds_nothing_wrong(served):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool comes with Prometheus, which is not installed")
    checked = subprocess.run([promtool, "check", "metrics"], input=ask(served)[1], text=True, capture_output=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def test_a_limit_leaves_topics_out_and_says_how_many(served, client):
    for number in range(5):
        client.create_topic(f"t{number}")
    samples = scrape(served, lambda each: each["penstock_left_out"][()] == 2)
    assert len(samples["penstock_topic_records"]) == 3


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("POST", "/metrics", 405), ("GET", "/metrics?x=1", 200), ("HEAD", "/metrics", 200)],
)
def test_other_requests_are_refused(served, method, path, status):
    found, body = ask(served, path, method)
    assert (found, bool(body)) == (status, method != "HEAD")


def test_a_request_that_is_too_long_is_refused(served):
    with socket.create_connection(("127.0.0.1", port(served)), timeout=60) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nX: " + b"x" * REQUEST_BYTES)
        assert connection.recv(100).startswith(b"HTTP/1.1 431 ")


def test_connections_that_ask_nothing_lock_no_scraper_out(served):
    held = [socket.create_connection(("127.0.0.1", port(served)), timeout=60) for _ in range(CONNECTIONS)]
    try:
        assert ask(served)[0] == 200
        assert select.select(held, [], [], 60)[0] == [held[0]]
        assert held[0].recv(1) == b""
    finally:
        for each in held:
            each.close()


def test_without_the_broker_it_says_so_and_then_goes_on(served):
    broker = served.ready["pids"]["broker"]
    os.kill(broker, signal.SIGSTOP)
    try:
        samples = scrape(served, lambda each: each["penstock_up"][()] == 0)
        assert "penstock_requests_total" not in samples
        assert (("process", "broker"),) in samples["penstock_process_resident_bytes"]
    finally:
        os.kill(broker, signal.SIGCONT)
    assert scrape(served, lambda each: each["penstock_up"][()] == 1)["penstock_requests_total"]


def test_one_that_is_killed_is_started_again_where_it_was(served):
    pid = served.ready["pids"]["exporter"]
    with end_of(pid) as ended:
        os.kill(pid, signal.SIGKILL)
        assert select.select([ended], [], [], 60)[0]
    assert served.process.stdout is not None
    again = json.loads(served.process.stdout.readline())
    assert (again["metrics"], again["pids"]["exporter"] != pid) == (served.ready["metrics"], True)
    assert scrape(served)["penstock_up"] == {(): 1}


def test_an_address_for_other_machines_is_refused(cli: Cli, tmp_path):
    with pytest.raises(InsecureListen, match="metrics name topics"):
        ExporterConfig(url="", metrics=("tcp://0.0.0.0:0",)).addresses()
    listen = ["--data", str(tmp_path / "d"), "--listen", f"unix://{tmp_path}/s"]
    said = cli("serve", *listen, "--metrics", "tcp://0.0.0.0:0")
    assert "metrics name topics" in said.err
    assert not (tmp_path / "d").exists()
    assert ExporterConfig(url="", metrics=("tcp://0.0.0.0:0",), insecure=True).addresses()


def look() -> Look:
    """Of two topics, each with a group and a queue."""
    names = ("a", "b")
    return Look(
        now=datetime.now(UTC), took_s=0.1, stats={"turns": 1},
        topics=[Topic(name, "", {}, []) for name in names],
        groups=[Group(name, "report", [], []) for name in names],
        queues=[Queue(name, "jobs", {}, []) for name in names],
    )  # fmt: skip


def reader(name: str, *seen: str) -> Principal:
    return Principal(name, [Grant(False, frozenset(["see"]), each) for each in seen])


def test_a_reader_is_shown_what_it_may_see():
    def shown(*seen: str) -> list[str]:
        found = visible(look(), reader("ann", "node", *seen))
        assert found.stats == {"turns": 1}
        things = [*(each.name for each in found.topics), *(f"{each.topic}/{each.name}" for each in found.groups)]
        return [*things, *(f"{each.topic}/{each.name}" for each in found.queues)]

    assert shown() == []
    assert shown("topic:a") == ["a"]
    assert shown("group:b/*") == ["b/report", "b/jobs"]
    assert shown("*") == ["a", "b", "a/report", "b/report", "a/jobs", "b/jobs"]


def test_readers_of_one_look_have_answers_of_their_own(monkeypatch):
    looks: list[int] = []

    async def looked(exporter: Exporter) -> Look:
        looks.append(1)
        return look()

    monkeypatch.setattr(Exporter, "_look", looked)
    monkeypatch.setattr("penstock.exporter.TEXTS", 2)

    async def scraped() -> list[bytes]:
        exporter = Exporter(cast("AsyncClient", None), ExporterConfig(url="", metrics=()))
        return [await exporter.scrape(reader(name, f"topic:{name}")) for name in ("a", "b", "a", "none", "b")]

    answers = [re.findall(rb'penstock_topic_records{topic="(.)"}', each) for each in asyncio.run(scraped())]
    assert answers == [[b"a"], [b"b"], [b"a"], [], [b"b"]]
    assert looks == [1]


def test_histograms_are_shown_by_count_and_quantiles(cli: Cli, served):
    shown = cli("stats", "turns", "--url", served.unix).text
    assert re.search(r"turns.us +\d+, p50 \d+, p99 \d+", shown)
    shown = cli("stats", "requests", "--url", served.unix).text
    assert re.search(r"^requests.by_kind: Ping +[\d,]+ *$", shown, re.MULTILINE)
    assert re.search(r"^requests.us: Ping +\d+, p50 \d+, p99 \d+ *$", shown, re.MULTILINE)
    assert max(map(len, shown.splitlines())) < 80
