"""The tests that kombu and Celery ship, over our transport and result backend.

| tests | run? |
|---|---|
| kombu, t/integration/common.py | yes: what all transports promise, by the classes of support/kombu_suite.py |
| kombu, `BaseEventLoop` there | no: the transport has no event loop |
| kombu, `BaseTimeToLive` there | no: messages do not expire, as with Redis |
| kombu, the other files of t/integration | no: each is about one other transport |
| kombu, t/unit | no: of kombu itself and of other transports, with mocks of their clients |
| Celery, t/integration: test_canvas.py, test_group_chains.py, test_inspect.py | yes, under soak: with a real worker |
| Celery, there: test_tasks.py, test_worker.py, test_upgrade.py | no: waits of minutes, and workers in containers |
| Celery, there: test_*backend*.py, test_connection_recovery.py | no: each is about one other backend or broker |
| Celery, the other files there | no: of leaks, loaders, schedules and serializers of Celery itself |
| Celery, t/smoke | no: they start brokers and workers in Docker |
| Celery, t/unit | no: of Celery itself, with brokers and backends in memory |

Celery's tests tell what ran through a Redis of their own, whatever the broker is: without redis-server they skip.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from support import shipped
from support.processes import Serving

from perf.systems import servers

ALL_AT_ONCE = "is given messages as they come where it has no limit, and one a call, as by Redis"
KOMBUS = {
    "TestPriority.test_publish_consume": ALL_AT_ONCE,
    "TestPriority.test_publish_requeue_consume": ALL_AT_ONCE,
    "TestPriority.test_simple_buffer_publish_consume": ALL_AT_ONCE,
    "TestFailover.test_failover_switches_to_alternate_url": "asks for a port, and kombu reads none from a URL with a +",
}
"""Those that fail, and why."""
CELERYS = {
    "test_chain.test_chord_header_id_duplicated_on_rabbitmq_msg_duplication[redis-group-ids]":
        "publishes options that are not JSON; over a Redis broker it is not run",
    "test_chord.test_error_propagates_from_chord":
        "an error in front of a chord does not reach it: Celery's issue 6437, and expected to fail over Redis as well",
    "test_Inspect.test_scheduled": "the broker holds tasks with an ETA, and no worker",
}  # fmt: skip
FILES = ["test_canvas.py", "test_group_chains.py", "test_inspect.py"]
LEAST = 140
"""Of those that do not skip."""
ALONE = ["-c/dev/null", "--noconftest"]
SETTINGS = ["-c/dev/null", "--rootdir=.", "-p", "celery.contrib.pytest", "-o", "python_classes=test_*", "--timeout=120"]


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    place = tmp_path_factory.mktemp("served")
    with Serving(ServeConfig(data=str(place / "data"), listen=(f"unix://{place}/b",), board_rows=256)) as serving:
        yield f"penstock+{serving.url}"


def test_what_kombu_expects_of_transports(url, tmp_path):
    suite = shipped.TESTS / "support" / "kombu_suite.py"
    found = shipped.run(
        only_t("kombu", tmp_path), [*ALONE, "--import-mode=importlib", str(suite)],
        environment={"KOMBU_SUITE_URL": url}, timeout_s=250,
    )  # fmt: skip
    assert len(found) >= 39
    assert shipped.unexcused(found, KOMBUS) == {}


@pytest.mark.soak
def test_what_celery_expects_of_brokers_and_backends(url, tmp_path):
    sources = only_t("celery", tmp_path)
    if reason := servers.absence("redis-server", "redis"):
        pytest.skip(reason)
    (sources / "integration-tests-config.json").write_text(json.dumps({"worker_pool_putlocks": False}))
    port = servers.free_port()
    server = [servers.program("redis-server"), "--port", str(port), "--bind", servers.LOOPBACK, "--save", ""]
    with servers.running(server, tmp_path / "redis.log", [port]):
        found = shipped.run(
            sources, [*SETTINGS, *(f"t/integration/{name}" for name in FILES)],
            environment={"TEST_BROKER": url, "TEST_BACKEND": url, "REDIS_HOST": servers.LOOPBACK,
                         "REDIS_PORT": str(port)}, timeout_s=3000,
        )  # fmt: skip
    assert len(found) >= LEAST
    assert shipped.unexcused(found, CELERYS) == {}


def only_t(package: str, place: Path) -> Path:
    """A directory with the package `t` of the sources alone: what is installed is tested."""
    alone = place / "alone"
    alone.mkdir()
    (shipped.unpacked(package, place / "sources") / "t").rename(alone / "t")
    return alone
