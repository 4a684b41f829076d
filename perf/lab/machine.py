"""The conditions of a figure besides the code: the machine, the disk, the interpreter, the versions, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
import timeit
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

LIBRARIES = ("penstock", "pyzmq", "numpy", "pyarrow", "msgspec", "msgpack", "xxhash", "posix-ipc", "pyspark")

CALLS = 100_000
"""That are timed at once."""


def facts(directory: Path) -> dict[str, object]:
    """Everything a reader needs to compare with another machine."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "virtual": "hypervisor" in _first("/proc/cpuinfo", "flags").split(),
        "filesystem": filesystem(directory),
        "python": platform.python_version(),
        "build": build(),
        "call_ns": round(call_ns(), 1),
        "libzmq": _libzmq(),
        "versions": {name: _version(name) for name in LIBRARIES},
        "commit": commit(),
        "command": " ".join(["python -m perf", *sys.argv[1:]]),
    }


def build() -> str:
    """How this interpreter was built, as far as it tells: optimised by a profile (PGO) and at link time (LTO), or not.

    Distributions keep their flags to themselves, so of theirs it is the package's version.
    """
    if sys.base_prefix == "/usr":
        return f"package {_package(f'python{sys.version_info.major}.{sys.version_info.minor}-minimal')}"
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    found = [name for name, flag in (("PGO", "--enable-optimizations"), ("LTO", "--with-lto")) if flag in arguments]
    return " and ".join(found) or "without PGO and LTO"


def call_ns() -> float:
    """What the interpreter takes for one call of a function, in nanoseconds, at its best."""
    times = timeit.repeat("call()", setup="def call(): pass", number=CALLS, repeat=5)
    return min(times) / CALLS * 1e9


class ProcessorTime(NamedTuple):
    """Time of all processors since boot, in ticks of the kernel, and how much of it the hypervisor gave to others."""

    all: int
    stolen: int

    @classmethod
    def now(cls) -> ProcessorTime:
        ticks = [int(word) for word in Path("/proc/stat").read_text().partition("\n")[0].split()[1:9]]
        return cls(sum(ticks), ticks[7])

    def stolen_since(self, before: ProcessorTime) -> float:
        """The share that was stolen since then, 0 to 1."""
        return (self.stolen - before.stolen) / max(self.all - before.all, 1)


def filesystem(directory: Path) -> str:
    """Kind of file system under `directory`, by the longest mount point that holds it."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    holding = [(mount[1], mount[2]) for mount in mounts if directory.resolve().is_relative_to(mount[1])]
    return max(holding, key=lambda mount: len(mount[0]), default=("", "unknown"))[1]


def commit() -> str:
    """The commit measured, with `+` when the tree differs from it."""
    where = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=where, capture_output=True, text=True)
        changed = subprocess.run(["git", "status", "--porcelain", "-uno"], cwd=where, capture_output=True, text=True)
    except FileNotFoundError:
        return "unknown: git is not installed"
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "") if not head.returncode else "unknown"


def _first(path: str, key: str) -> str:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def _package(name: str) -> str:
    try:
        found = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], capture_output=True, text=True)
    except FileNotFoundError:
        return "of this distribution"
    return found.stdout or "of this distribution"


def _libzmq() -> str:
    import zmq

    return zmq.zmq_version()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
