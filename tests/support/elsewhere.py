"""Not Linux: hides from this process what macOS or Windows has not, then uses clients. Run as a program.

    python -m support.elsewhere URL TOPIC

The standard library chooses its own modules by what this system has, so what needs them is loaded before.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import os
import select
import signal
import socket
import sys
import time
from typing import Any

LOADED_BEFORE = (
    "concurrent.futures.thread", "logging", "msgspec.msgpack", "multiprocessing.connection", "numpy", "platform",
    "random", "secrets", "selectors", "shutil", "subprocess", "tempfile", "xxhash", "zmq.utils.monitor", "zoneinfo",
)  # fmt: skip
MODULES = ("fcntl", "grp", "posix_ipc", "pwd", "resource", "termios", "_posixshmem")
HIDDEN = {
    os: (
        "EFD_", "O_CLOEXEC", "O_DIRECTORY", "O_NONBLOCK", "RWF_", "eventfd", "fork", "getuid", "memfd", "pidfd_open",
        "pipe2", "posix_", "pread", "pwrite", "register_at_fork", "sched_", "statvfs", "uname",
    ),
    select: ("EPOLL", "POLL", "epoll", "kqueue", "poll"),
    signal: ("SIGALRM", "SIGCONT", "SIGHUP", "SIGKILL", "SIGSTOP", "pthread_"),
    socket: ("AF_UNIX", "MSG_", "SCM_", "SOCK_CLOEXEC", "SOCK_NONBLOCK", "SO_PEERCRED", "recv_fds", "send_fds"),
    time: ("CLOCK_",),
}  # fmt: skip
"""By module, how names begin that it does not have there."""


class _Refusing:
    """Finds none of the modules."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide() -> None:
    """From here on this process is not on Linux, as far as programs can tell."""
    for name in LOADED_BEFORE:
        importlib.import_module(name)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Refusing())  # pyright: ignore[reportArgumentType]
    for module, beginnings in HIDDEN.items():
        for name in [name for name in vars(module) if name.startswith(beginnings)]:
            delattr(module, name)
    ctypes.CDLL = ctypes.PyDLL = _no_library  # pyright: ignore[reportAttributeAccessIssue]
    socket.socketpair = _pair  # pyright: ignore[reportAttributeAccessIssue]
    sys.platform = "win32"


def _pair(*_: object) -> tuple[socket.socket, socket.socket]:
    """As Python's own where the system has no pairs: over the network of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        return one, listening.accept()[0]


def _no_library(name: str | None, *_: object, **__: object) -> None:
    raise TypeError("this system has no C library without a name")


def use(url: str, topic: str) -> None:
    """A stream, a queue, a transaction and the sentences of what there is not."""
    import penstock

    with penstock.connect(url) as client:
        client.create_topic(topic, partitions=2)
        with client.producer(topic) as producer, client.consumer(topic, group="g") as consumer:
            assert producer.send(b"0", partition=1) == 0
            future = producer.send_nowait(b"1", partition=1)
            producer.send_many([b"%d" % number for number in range(2, 100)], partition=1)
            assert future.result() == 1
            found: list[bytes] = []
            while len(found) < 100:
                found += [record.value for record in consumer.fetch(wait=30)]
            assert found == [b"%d" % number for number in range(100)]
            consumer.commit()
        with client.worker(topic, group="w") as worker:
            worker.ack(worker.fetch(10, wait=30))
        with client.transaction() as transaction:
            transaction.producer(topic).send(b"together", partition=0)
        assert [record.value for record in client.read(topic, 0, 0)] == [b"together"]


async def use_on_a_loop(url: str, topic: str) -> None:
    """The same for event loops, on the selector that is left."""
    import penstock.aio

    async with await penstock.aio.connect(url) as client:
        await client.create_topic(topic)
        async with await client.producer(topic) as producer, await client.consumer(topic) as consumer:
            futures = [await producer.send_nowait(b"x") for _ in range(100)]
            assert [await future for future in futures] == list(range(100))
            assert len(await consumer.fetch(100, wait=30)) > 0


def refused() -> list[str]:
    """What is said of that which needs Linux."""
    import penstock

    said: list[str] = []
    for call in (
        lambda: penstock.connect("unix:///run/broker.sock"),
        lambda: penstock.connect("ipc:///run/broker.sock"),
        lambda: penstock.connect("file:///data"),
        lambda: penstock.connect(),
        lambda: penstock.Log("log"),
    ):
        try:
            call()
        except penstock.errors.NeedsLinux as error:
            said.append(error.message)
    return said


if __name__ == "__main__":
    hide()
    loop = asyncio.SelectorEventLoop(importlib.import_module("selectors").SelectSelector())
    use(sys.argv[1], sys.argv[2])
    loop.run_until_complete(use_on_a_loop(sys.argv[1], sys.argv[2] + "-aio"))
    loop.close()
    print(*refused(), sep="\n")
