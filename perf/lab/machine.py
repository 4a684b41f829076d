"""The conditions of a figure besides the code: the machine, the disk, the versions, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("penstock", "pyzmq", "numpy", "pyarrow", "msgspec", "msgpack", "xxhash", "posix-ipc", "pyspark")


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
        "libzmq": _libzmq(),
        "versions": {name: _version(name) for name in LIBRARIES},
        "commit": commit(),
        "command": " ".join(["python -m perf", *sys.argv[1:]]),
    }


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


def _libzmq() -> str:
    import zmq

    return zmq.zmq_version()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
