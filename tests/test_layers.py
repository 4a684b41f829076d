"""The layer rule (ARCHITECTURE.md), enforced: each floor imports only from below, pure modules stay pure.

Every import counts, also inside functions and for the type checker only.
The rules are tables; the tests below ask them of the real tree, and of small made-up trees that break each rule.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sources import Source, shipped

# What each part may import from penstock, as prefixes of module names; a part always may import itself.
# The most specific entry decides, so `penstock.broker.engine` is its own part.
BELOW = {
    "penstock.storage": [],
    "penstock.transport": ["penstock.storage.batch", "penstock.storage.errors"],
    "penstock.broker.engine": [
        "penstock.storage",
        "penstock.transport",
        "penstock.broker.errors",
        "penstock.broker.rights",
    ],
    "penstock.broker.raft": [],
    "penstock.broker": ["penstock.storage", "penstock.transport", "penstock.broker"],
    "penstock.clients": [
        "penstock.storage",
        "penstock.transport",
        "penstock.broker.engine",
        "penstock.broker.errors",
    ],
    "penstock.gateway": [
        "penstock.storage",
        "penstock.transport",
        "penstock.broker.access_file",
        "penstock.broker.access_watch",
        *("penstock.broker.errors", "penstock.broker.exposure", "penstock.broker.refusals"),
        "penstock.broker.passwords",
        "penstock.broker.processes",
        "penstock.broker.quotas",
        "penstock.broker.rights",
        "penstock.broker.system",
        "penstock.broker.beside",
        "penstock.broker.tokens",
        "penstock.clients",
    ],
    "penstock.spark": ["penstock.storage", "penstock.transport", "penstock.broker.errors", "penstock.clients"],
    "penstock.spark.examples": ["penstock"],  # programs of users, as they would write them
    "penstock.adapters": ["penstock.storage", "penstock.transport", "penstock.broker.errors", "penstock.clients"],
    **{"pyspark_penstock": ["penstock.spark"], "kombu_penstock": []},
    "penstock": ["penstock"],
}

ZMQ = ("raw_sockets", "zmq_socket", "zmq_curve", "zmq_serving", "zmq_greeting", "zmq_connecting", "zmq_sockets")
# Inside a floor: its folders and modules from the bottom up. Each imports from itself and from those before it.
# "" is whatever is not named.
ORDER = {
    "penstock": [
        *("storage", "transport", "broker", "clients", "gateway", "spark", "adapters"),
        *("config", "config_default", "address", "connecting", "tasks", "aio", "errors", "metrics"),
        *("scrape_door", "exporter", "tracing", "testing", "installed", "checkup", ""),
        *("spark.examples.flights.transformations.flights", "demo", "cli", "__main__"),
    ],
    "penstock.storage": [
        *("errors", "linux", "forks", "units", "printable", "arguments", "ticker", "files", "memory_files", "adopting"),
        *("unreadable", "rehearsal"),
        # the bytes of a batch
        *("header", "header_list", "codecs", "columns", "few", "encoding", "arrow_numbers", "arrow_headers", "arrow"),
        *("batch", "arrow_encoding", "kept", "projection", "record", "buffer"),
        # the files of a log
        *("layout", "segment", "index", "recovery", "accepted", "poison", "promises", "snapshots", "runs", "finals"),
        # shared memory, and a data directory
        *("histogram", "shared_block", "futex", "board_row", "board", "data_directory", "lock", "log_ids"),
        # where a log ends
        *("evidence", "scan", "room", "plan", "tail", "group_commit", "cutting", "opening"),
        # reading
        *("segment_reader", "readable", "cursor", "reader", "retention", "extents", "measure", "playback"),
        # damage
        *("dump", "first_page", "aside", "verify", "repair", "scrubbing", "mending"),
        # copies
        *("backup_point", "backup", "restore"),
        # writing
        *(
            "first",
            "appending",
            "order",
            "log",
            "background_sync",
            "jobs",
            "trimming",
            "following",
            "follow",
            "embedded",
        ),
        "log_store",
        # several logs
        *("range_locks", "rolling_logs", "channel"),
        # a log that is lent
        *("lending", ""),
    ],
    "penstock.transport": [
        *("errors", "message", "names", "url", "murmur2", "partitioner"),
        # messages and sessions
        *("naming_messages", "lending_messages", "queue_messages", "fetch_messages", "range_messages"),
        "barrier_messages",
        *("transaction_messages", "removal_messages", "checkpoint_messages", "cluster_messages", "topic_messages"),
        *("messages", "codec", "failures"),
        *("batch_states", "sent", "producer_session", "credit", "consumer_session"),
        # sockets
        *("framing", "socket_options", "descriptors", "connections", "set_aside", "unread", "ipc_paths"),
        *("other_doors", "apart", "free_addresses", "bell", "zmq_keys", "keys"),
        *("unix_connection", "unix_client", "unix_server", *ZMQ, "sockets", ""),
    ],
    "penstock.adapters": [
        *("celery.names", "celery.routing", "celery.link", "celery.deliveries", "celery.temporary", "celery.feeds"),
        *("celery.channel", "celery.transport", "celery.table", "celery.results", "celery", "dramatiq", ""),
    ],
    "penstock.spark": [
        *("errors", "java", "jvm", "workers", "losses", "syncing", "offsets", "options", "connection", "planning"),
        # the source
        *("source_options", "subscription", "schema", "rows", "limits", "filters", "starting", "micro_batches"),
        *("reading", "batch_reader", "stream_reader"),
        # the format, and sessions that know it
        *("sink", "source", "local_session", "", "pipelines"),
        "examples.flights.transformations.flights",
    ],
    "penstock.broker": [
        *("errors", "quotas", "rights", "passwords", "tokens", "access_file", "access_watch", "exposure"),
        *("processes", "system", "pipes", "diagnostics", "log_levels", "refusals", "access", "stop"),
        *("raft", "peers", "cluster_config", "config", "cold_reads", "control", "frugal_files", "packets"),
        *("poller", "wakes", "keeper", "children", "companions", "supervisor", "beside", "latencies", "admission"),
        *("watermarks", "request_names", "engine", "lenders", "store", "replica", "port", "overdrafts"),
        *("member", "throttling", "intake"),
        *("broker", "broker_process", "__main__", ""),
    ],
    "penstock.broker.engine": [
        *("tables", "ports", "turns", "logs", "needs", "guard", "reserve"),
        *("queues.choosing", "queues.topic_queues", "queues.group_rates", "queues.verbs", "queues.claiming"),
        *("queues.lines", "queues.wakeups", "queues.requests", "queues.upkeep", "queues.service", "queues"),
        *("streams", "topics", "transactions", "producing", "lending", "housekeeping", "desk"),
        *("office_port", "office", "node", ""),
    ],
    "penstock.broker.raft": [
        *("errors", "messages", "storage", "quorum", "membership", "inflight", "progress", "unstable", "log_view"),
        *("read_rounds", "state", "snapshots", "replication", "heartbeats", "reads", "proposals", "transfer"),
        *("changes", "election", "core", "ready", "node", ""),
    ],
    "penstock.gateway": [
        *("errors", "libraries", "rotation", "guessing", "telling", "exposition", "refused", "users", "turns"),
        *("holding", "config", "tls"),
        *("lingering", "connections", "handshakes", "listening", "append_times", "appending", "asking"),
        *("link", "sending", "reading", "consumers", "leases", "task_leases"),
        *("resp", "http", "console", "process", "__main__", ""),
    ],
    "penstock.gateway.http": [
        *("problems", "request_ids", "strict_json", "origins", "authenticating", "operation"),
        *("shapes", "formats", "task_shapes"),
        *("wording", "openapi"),
        *("page", "arrow_bodies", "producing", "queues", "streaming", "tasks", "groups", "topics"),
        *("barriers", "gateway", "table", "app", "connection", "server", ""),
    ],
    "penstock.gateway.console": [
        *("figures", "payloads", "forms", "sampler", "rendering", "making"),
        *("overview", "topics", "queues", "browser", "actions", "console", ""),
    ],
    "penstock.gateway.resp": [
        # bytes and values
        *("refusals", "replies", "parsing", "runs", "requests", "names", "entries", "fields", "id_runs", "tickets"),
        *("command", "places", "read_options", "appends"),
        # commands
        *("basic", "transactions", "keys", "trims", "streams", "groups", "pending", "inspecting", "topics", "table"),
        *("connection", "server", ""),
    ],
    "penstock.clients": [
        *(
            "errors",
            "unpicklable",
            "arguments",
            "tracing",
            "descriptions",
            "reading",
            "connection",
            "channels",
            "embedded",
            "opening",
            *("encryption", "encoding", "serializing"),
        ),
        *("queues", "producing", "consuming", "working", "ranges", "batches", "barriers"),
        *("transactions", "sql", "verbs"),
        *(
            "producer",
            *("consumer", "topics_consumer", "consumer_client"),
            "task",
            "worker",
            "client",
            "by_hand",
            *("backing_up", "adopting", "cluster", "aio"),
            "tasks",
            "spooling",
            *("memory_broker", "testing"),
            "",
        ),
    ],
}

# Modules that hold decisions only: time, randomness and bytes come in as arguments. These must, and load nothing
# of ours that does not; every other module whose docstring calls it "Pure" may not import the libraries either.
PURE = [
    "penstock.broker.engine",
    "penstock.broker.errors",
    "penstock.broker.raft",
    "penstock.broker.replica.durable_prefix",
    "penstock.broker.replica.entries",
    "penstock.broker.rights",
    "penstock.storage.batch",
    "penstock.storage.board_row",
    "penstock.storage.columns",
    "penstock.storage.encoding",
    "penstock.storage.errors",
    "penstock.storage.finals",
    "penstock.storage.header",
    "penstock.storage.histogram",
    "penstock.storage.index",
    "penstock.storage.layout",
    "penstock.storage.plan",
    "penstock.storage.record",
    "penstock.storage.recovery",
    "penstock.storage.retention",
    "penstock.transport.batch_states",
    "penstock.transport.codec",
    "penstock.transport.consumer_session",
    "penstock.transport.errors",
    "penstock.transport.framing",
    "penstock.transport.messages",
    "penstock.transport.partitioner",
    "penstock.transport.producer_session",
    "penstock.transport.url",
]
IMPURE_LIBRARIES = {
    *("asyncio", "ctypes", "fcntl", "io", "mmap", "multiprocessing", "os", "pathlib", "random"),
    *("secrets", "select", "selectors", "shutil", "signal", "socket", "subprocess", "tempfile", "threading"),
    *("time", "uuid", "zmq"),
}

# But for these, which read through the files that they are handed.
LENT = {"penstock.broker.engine.logs.replay": {"penstock.storage.accepted", "penstock.storage.scan"}}

# One module each knows these libraries, so that another one could take their place.
ONLY_IN = {
    "zmq": {f"penstock.transport.{name}" for name in (*ZMQ, "zmq_keys")},
    "socket": {
        "penstock.transport.bell",  # where there is no eventfd
        "penstock.transport.connections",  # of libzmq
        "penstock.transport.free_addresses",
        "penstock.transport.ipc_paths",
        "penstock.transport.other_doors",
        "penstock.transport.unix_client",
        "penstock.transport.unix_connection",
        "penstock.transport.unix_server",
        *("penstock.broker.packets", "penstock.gateway.handshakes"),
        "penstock.clients.connection.naming",  # for the machine's name
    },
    "click": {"penstock.cli"},
    "rich": {"penstock.cli", "penstock.demo", "penstock.spark"},
    "pyspark": {"penstock.spark", "pyspark_penstock", "penstock.demo.delays"},  # the last for its types alone
    "py4j": {"penstock.spark"},
    "starlette": {"penstock.gateway.http.app"},
    "jinja2": {"penstock.gateway.console.rendering"},
    "uvicorn": {"penstock.gateway.http.connection", "penstock.gateway.http.server"},
}

# What the core install brings. Anything else is an extra: imported inside the function that needs it.
CORE = {"click", "cronsim", "msgpack", "msgspec", "numpy", "rich", "xxhash", "zmq"}
FREE_OF_THE_CORE_RULE = [
    *("penstock.spark", "pyspark_penstock", "penstock.demo", "penstock.clients.testing", "penstock.cli.line_editor"),
    *("penstock.adapters", "kombu_penstock"),
    # loaded once the libraries are known to be there
    *("penstock.gateway.http.app", "penstock.gateway.http.connection", "penstock.gateway.http.server"),
    "penstock.gateway.console.rendering",
]

# Must load without any extra all the same: the face loads them.
LOADED_BY_THE_FACE = ["penstock.spark", "penstock.spark.errors", "penstock.spark.java", "penstock.spark.jvm"]

# Not inside the package, so that it has nothing to import relatively.
OUTSIDE = ["penstock.spark.examples", "pyspark_penstock", "kombu_penstock"]


FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


def within(module: str, prefixes: list[str] | set[str]) -> bool:
    return any(module == prefix or module.startswith(prefix + ".") for prefix in prefixes)


def part_of(module: str) -> str:
    return max((part for part in BELOW if within(module, [part])), key=len)


def upward_imports(sources: list[Source]) -> Iterator[str]:
    modules = {source.module for source in sources}
    for source in sources:
        part = part_of(source.module)
        for found in source.imports(modules):
            if within(found.name, ["penstock"]) and not within(found.name, [part, *BELOW[part]]):
                yield f"{source.place}:{found.line}: {part} must not import {found.name}"


def place_in(floor: str, module: str) -> str:
    """Where a module of a floor stands in its order."""
    inner = module.removeprefix(floor).removeprefix(".")
    return max((place for place in ORDER[floor] if not place or within(inner, [place])), key=len)


def imports_up_a_floor(sources: list[Source]) -> Iterator[str]:
    modules = {source.module for source in sources}
    for floor, order in ORDER.items():
        for source in sources:
            for found in source.imports(modules) if within(source.module, [floor]) else ():
                if found.name in modules and within(found.name, [floor]):
                    above, below = place_in(floor, source.module), place_in(floor, found.name)
                    if order.index(below) > order.index(above):
                        yield f"{source.place}:{found.line}: {above or floor} stands below {below or floor}"


def is_pure(source: Source) -> bool:
    return within(source.module, PURE) or bool(re.search(r"\bPure\b", ast.get_docstring(source.tree) or ""))


def impure_imports(sources: list[Source]) -> Iterator[str]:
    modules = {source.module for source in sources}
    pure = [source for source in sources if is_pure(source)]
    names = {source.module for source in pure}
    for source in pure:
        for found in source.imports(modules):
            loads_ours = within(source.module, PURE) and found.at_load and found.name in modules
            impure = loads_ours and found.name not in names | LENT.get(source.module, set())
            if impure or found.name.partition(".")[0] in IMPURE_LIBRARIES:
                yield f"{source.place}:{found.line}: a pure module must not import {found.name}"


def leaked_libraries(sources: list[Source]) -> Iterator[str]:
    modules = {source.module for source in sources}
    for source in sources:
        for found in source.imports(modules):
            homes = ONLY_IN.get(found.name.partition(".")[0])
            if homes and not within(source.module, homes):
                yield f"{source.place}:{found.line}: only {', '.join(sorted(homes))} may import {found.name}"


def eager_extras(sources: list[Source]) -> Iterator[str]:
    modules = {source.module for source in sources}
    allowed = CORE | set(sys.stdlib_module_names) | {"penstock"}
    for source in sources:
        if not within(source.module, FREE_OF_THE_CORE_RULE) or source.module in LOADED_BY_THE_FACE:
            for found in source.imports(modules):
                if found.at_load and found.name.partition(".")[0] not in allowed:
                    yield f"{source.place}:{found.line}: {found.name} is an extra; import it where it is used"


def absolute_imports(sources: list[Source]) -> Iterator[str]:
    modules = {source.module for source in sources}
    for source in (source for source in sources if not within(source.module, OUTSIDE)):
        for found in source.imports(modules):
            if not found.relative and found.name.partition(".")[0] in ("penstock", "tests", "perf", "support"):
                yield f"{source.place}:{found.line}: sources import each other relatively, not {found.name}"


def cycles(sources: list[Source]) -> list[str]:
    """Modules that lead back to each other, after taking away whatever can be put in an order."""
    modules = {source.module for source in sources}
    needs = {
        source.module: {found.name for found in source.imports(modules)} & modules - {source.module}
        for source in sources
    }
    while free := [module for module, needed in needs.items() if not needed & needs.keys()]:
        for module in free:
            del needs[module]
    return sorted(needs)


CHECKS = [
    upward_imports,
    imports_up_a_floor,
    impure_imports,
    leaked_libraries,
    eager_extras,
    absolute_imports,
    cycles,
]


@pytest.fixture(scope="module")
def ours() -> list[Source]:
    """Every module of the wheel, which all of the tests parse once."""
    return shipped()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_tree_has_no(check, ours):
    assert list(check(ours)) == []


def test_every_pure_module_named_here_exists(ours):
    modules = {source.module for source in ours}
    assert [name for name in PURE if name not in modules] == []


def test_every_place_in_an_order_exists(ours):
    modules = {source.module for source in ours}
    named = {f"{floor}.{place}" for floor, order in ORDER.items() for place in order if place}
    assert named - modules == set()


@pytest.mark.parametrize("floor", ORDER)
def test_every_module_but_the_package_itself_has_a_place_in_the_order(floor, ours):
    below = [source.module for source in ours if within(source.module, [floor]) and source.module != floor]
    assert [module for module in below if not place_in(floor, module)] == []


BROKEN = [
    (upward_imports, {"storage/log.py": "from ..broker import serve"}),
    (upward_imports, {"storage/log.py": "def late():\n    from ..clients.channel import Channel"}),
    (upward_imports, {"transport/codec.py": "from ..storage import log", "storage/log.py": ""}),
    (upward_imports, {"clients/client.py": "from ..broker.keeper import Keeper"}),
    (upward_imports, {"broker/engine/node.py": "from ..keeper import Keeper"}),
    (imports_up_a_floor, {"clients/connection/a.py": "from ..client import b", "clients/client.py": ""}),
    (imports_up_a_floor, {"clients/errors.py": "def late():\n    from .verbs import a", "clients/verbs.py": ""}),
    (imports_up_a_floor, {"clients/queues/a.py": f"{FOR_TYPES}from ..verbs import b", "clients/verbs.py": ""}),
    (imports_up_a_floor, {"clients/client.py": "from . import other", "clients/other.py": ""}),
    (imports_up_a_floor, {"broker/engine/logs/a.py": "from ..queues import b", "broker/engine/queues/b.py": ""}),
    (
        imports_up_a_floor,
        {
            "broker/engine/queues/verbs.py": f"{FOR_TYPES}from .requests import b",
            "broker/engine/queues/requests/b.py": "",
        },
    ),
    (imports_up_a_floor, {"storage/opening.py": "from .log import b", "storage/log.py": ""}),
    (imports_up_a_floor, {"storage/files.py": f"{FOR_TYPES}from .rehearsal import b", "storage/rehearsal.py": ""}),
    (imports_up_a_floor, {"transport/codec.py": "from .sockets import b", "transport/sockets.py": ""}),
    (imports_up_a_floor, {"spark/reading.py": "from .sink.a import b", "spark/sink/a.py": ""}),
    (imports_up_a_floor, {"penstock/demo/a.py": "from ..cli import b", "penstock/cli/__init__.py": ""}),
    (imports_up_a_floor, {"penstock/config.py": "def late():\n    from .demo.a import b", "penstock/demo/a.py": ""}),
    (imports_up_a_floor, {"broker/engine/node.py": "from ..port import b", "broker/port.py": ""}),
    (imports_up_a_floor, {"broker/keeper/a.py": f"{FOR_TYPES}from ..broker import b", "broker/broker.py": ""}),
    (
        cycles,
        {"broker/engine/logs/a.py": "from .b import x", "broker/engine/logs/b.py": f"{FOR_TYPES}from .a import y"},
    ),
    (cycles, {"clients/queues/a.py": "from .b import x", "clients/queues/b.py": f"{FOR_TYPES}from .a import y"}),
    (cycles, {"clients/aio/a.py": "from .b import x", "clients/aio/b.py": "def late():\n    from . import a"}),
    (impure_imports, {"broker/engine/tables/groups.py": "import time"}),
    (impure_imports, {"storage/recovery.py": "from os import path"}),
    (impure_imports, {"storage/recovery.py": "from .files import Files", "storage/files.py": "import os"}),
    (impure_imports, {"clients/rules.py": '"""Pure."""\nimport random'}),
    (leaked_libraries, {"broker/broker.py": "import zmq"}),
    (leaked_libraries, {"transport/url.py": "from zmq import Context"}),
    (leaked_libraries, {"clients/client.py": "import socket"}),
    (leaked_libraries, {"clients/frames.py": "def late():\n    from pyspark.sql import Row"}),
    (leaked_libraries, {"penstock/cli/spark.py": "def late():\n    import pyspark"}),
    (eager_extras, {"storage/arrow.py": "import pyarrow"}),
    (eager_extras, {"spark/__init__.py": "import pyspark"}),
    (absolute_imports, {"clients/client.py": "from penstock.storage import Log"}),
    (absolute_imports, {"clients/client.py": "import support.files"}),
    (cycles, {"storage/a.py": "from .b import x", "storage/b.py": "from . import a"}),
]
ALLOWED = [
    {"transport/codec.py": "from ..storage.batch import parse", "storage/batch.py": ""},
    {"clients/embedded/local.py": "from ..broker.engine.node import Node", "broker/engine/node.py": ""},
    {"storage/arrow.py": "def decode():\n    import pyarrow"},
    {"clients/client.py": "from .connection.a import b", "clients/connection/a.py": f"{FOR_TYPES}from .c import d"},
    {"clients/__init__.py": "from .client import x", "clients/client.py": ""},
    {"penstock/__init__.py": "from .clients import connect", "clients/__init__.py": "connect = None"},
    {"spark/source.py": "import pyspark", "pyspark_penstock.py": "from penstock.spark.source import x"},
    {"spark/examples/one/job.py": "import penstock\nfrom pyspark import pipelines"},
]


def tree(root: Path, files: dict[str, str]) -> list[Source]:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return shipped(root)


@pytest.mark.parametrize(("check", "files"), BROKEN)
def test_a_tree_that_breaks_the_rule_is_caught(check, files, tmp_path):
    assert list(check(tree(tmp_path, files)))


@pytest.mark.parametrize("files", ALLOWED)
def test_what_the_rule_allows_passes(files, tmp_path):
    sources = tree(tmp_path, files)
    assert [line for check in CHECKS for line in check(sources)] == []
