"""What may keep a broker from working on this machine, now or soon, and what to do about it.

Idea: each check looks at one thing and gives findings: fine, a warning, or something bad with the exit code that
programs see. Checks only look; none needs the broker, which may be running, and none changes anything.

Contract: a check that cannot look says so as a warning. Must not know how findings are shown.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from .broker import access_file
from .broker.errors import InvalidUsers
from .broker.system import clock_is_synchronised
from .config import Config
from .gateway.errors import InvalidCertificate
from .gateway.tls import valid_until
from .installed import system, version_of
from .storage import layout, lock, poison
from .storage.board import boot_id, is_alive
from .storage.board_row import total_bytes
from .storage.data_directory import DAMAGED, DOUBTS, TOPICS, check_kinds, identify
from .storage.errors import Error
from .storage.files import Files
from .storage.shared_block import SHARED_MEMORY
from .transport.errors import InvalidKey
from .transport.keys import Key

FREE_BYTES = 1 << 30
"""Less than this, or than FREE_SHARE of the file system, is worth a warning."""

FREE_SHARE = 0.05
NO_ROOM_BYTES = 64 << 20
"""Less than this is bad: segments reserve nothing ahead below it, and nodes of a cluster take no records."""

FILES_OF_A_PARTITION = 2
FILES_BESIDE = 1024
"""For connections, and what a broker opens besides."""

RENEWAL_S = 14 * 86400
"""A certificate that ends sooner than this is worth a warning: those who renew it by a program do so before."""

FORGETFUL = ("tmpfs", "ramfs")
REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs")

ANOTHER = "name a directory of this user on a disk with --data or in the configuration"

Kind = Literal["damage", "space", "other"]


class Finding(NamedTuple):
    """What one check found. `state` is ok, warning or bad; `advice` is what to do."""

    check: str
    state: str
    says: str
    advice: str = ""
    kind: Kind = "other"


def examine(config: Config) -> Iterator[Finding]:
    """All checks that need no broker."""
    data = Path(config.data).absolute()
    checks: list[Callable[[], Iterator[Finding]]] = [
        versions,
        lambda: directory(data),
        lambda: permissions(data),
        lambda: credentials((config.users, config.access), (config.broker_key, config.key)),
        lambda: space(data),
        lambda: shared_memory(total_bytes(config.board_rows, config.mapped_readers), Path(SHARED_MEMORY)),
        lambda: limits(data),
        clock,
        lambda: certificate(config.tls_certificate, config.tls_key),
        lambda: logs(data),
    ]
    for check in checks:
        try:
            yield from check()
        except OSError as error:
            yield Finding("doctor", "warning", f"cannot look: {error}", "run it as the broker's user")


def versions() -> Iterator[Finding]:
    """What is installed."""
    found = {name: version_of(name) for name in ("penstock", "pyzmq", "msgspec", "numpy")}
    libraries = [f"{name} {version}" for name, version in found.items() if version]
    says = ", ".join([*libraries, f"Python {platform.python_version()}", system()])
    if sys.platform != "linux":
        yield Finding("versions", "bad", says, "a broker needs Linux: run it there, or in a container")
    else:
        yield Finding("versions", "ok", says)


def directory(data: Path) -> Iterator[Finding]:
    """Whether a broker would open the directory."""
    if not data.exists():
        yield _to_be_made(data)
        return
    if _keeps_nothing(data):
        yield Finding("data", "bad", f"{data} is on {_file_system(data)}, which keeps no files", ANOTHER)
        return
    try:
        found = identify(Files(), str(data))
        check_kinds(Files(), str(data))
    except Error as error:
        yield Finding("data", "bad", error.message, ANOTHER)
        return
    yield Finding("data", "ok", f"{data}, {'new' if found is None else f'node {found.node}'}")
    kind = _file_system(data)
    if kind in FORGETFUL:
        yield Finding("data", "warning", f"{data} is on {kind}: it is lost at a reboot", "use a disk")
    elif kind in REMOTE:
        yield Finding(
            "data", "warning", f"{data} is on {kind}, where syncs and locks may not hold", "use a file system of a disk"
        )


def _to_be_made(data: Path) -> Finding:
    """What the first start makes, or cannot."""
    above, why = _nearest(data), ""
    if not above.is_dir():
        why = f"{above} is no directory"
    elif _keeps_nothing(above):
        why = f"{above} is on {_file_system(above)}, which keeps no files"
    elif not os.access(above, os.W_OK | os.X_OK):
        why = f"{above} cannot be written"
    if why:
        return Finding("data", "bad", f"{data} cannot be made: {why}", ANOTHER)
    return Finding("data", "ok", f"{data} is not there yet: the first start makes it")


def _nearest(path: Path) -> Path:
    """The path, or the innermost above it that is there."""
    return next(each for each in (path, *path.parents) if each.exists())


def _keeps_nothing(path: Path) -> bool:
    """Whether a path is on a file system of the kernel's own, such as /proc, where root may write as well."""
    return os.statvfs(path).f_blocks == 0


def permissions(data: Path) -> Iterator[Finding]:
    """Who may read and write the data."""
    if not data.exists():
        return
    found = data.stat()
    if found.st_uid != os.geteuid() and os.geteuid() != 0:
        advice = f"run the broker and this command as user {found.st_uid}, or give it the files (chown -R)"
        yield Finding("permissions", "bad", f"{data} belongs to user {found.st_uid}, not {os.geteuid()}", advice)
    elif not os.access(data, os.R_OK | os.W_OK):
        yield Finding("permissions", "bad", f"{data} cannot be written", f"chmod u+rwX {data}")
    elif found.st_mode & 0o077:
        says = f"other users can reach the data: {data} has mode {found.st_mode & 0o777:o}"
        yield Finding("permissions", "warning", says, f"chmod go= {data}, unless that is meant")
    else:
        yield Finding("permissions", "ok", f"{data} is this user's alone")


def credentials(users: Iterable[str], keys: Iterable[str]) -> Iterator[Finding]:
    """Whether files of users and keys can be used: they are read as the broker and programs read them. "" is none."""
    for paths, read, command in (
        (users, access_file.read, "penstock user add"),
        (keys, Key.read, "penstock key generate"),
    ):
        for path in filter(None, dict.fromkeys(paths)):
            try:
                read(path)
            except (InvalidUsers, InvalidKey) as error:
                advice = f"mend it, or make one with {command}: programs refuse it until then"
                yield Finding("permissions", "bad", error.message, advice)
            else:
                yield Finding("permissions", "ok", f"{path} can be used, and is its user's alone")


def space(data: Path) -> Iterator[Finding]:
    """Room for segments, and for files."""
    place = _nearest(data)
    if _keeps_nothing(place):
        return
    usage, system = shutil.disk_usage(place), os.statvfs(place)
    says = f"{usage.free / 2**30:.1f} GiB free of {usage.total / 2**30:.1f} at {place}"
    advice = "shorten the retention of topics, trim or delete some, or give it a larger disk"
    state = "ok"
    if usage.free < NO_ROOM_BYTES:
        state, advice = "bad", f"{advice}: acks, trims and deletions go on meanwhile, without a restart"
    elif usage.free < FREE_BYTES or usage.free < FREE_SHARE * usage.total:
        state = "warning"
    yield Finding("space", state, says, "" if state == "ok" else advice, "space")
    if system.f_files and system.f_favail < FREE_SHARE * system.f_files:
        yield Finding("space", "warning", f"{system.f_favail} inodes left of {system.f_files}", "remove files", "space")


def shared_memory(needed: int, place: Path) -> Iterator[Finding]:
    """Room for the board."""
    if not place.is_dir() or not os.access(place, os.W_OK):
        says = f"{place} cannot be written: the board is a file beside the data, and syncs with it"
        yield Finding("shared memory", "warning", says, f"mount a tmpfs at {place}")
        return
    free = shutil.disk_usage(place).free
    says = f"{free >> 20} MiB free at {place}, a board takes {-(-needed // 2**20)}"
    if free < needed:
        advice = "give it more (--shm-size of a container), or lower board_rows; a running broker has its board already"
        yield Finding("shared memory", "bad", says, advice, "space")
    else:
        yield Finding("shared memory", "ok", says)


def limits(data: Path) -> Iterator[Finding]:
    """Descriptors for every partition."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    partitions = sum(1 for _ in (data / TOPICS).glob("*/*"))
    needed = FILES_OF_A_PARTITION * partitions + FILES_BESIDE
    says = f"{hard} files may be open; {partitions} partitions and connections take about {needed}"
    if 0 <= hard < needed:
        yield Finding("limits", "warning", says, "raise it: LimitNOFILE of the service, or ulimit -n")
    else:
        yield Finding("limits", "ok", says)


def clock() -> Iterator[Finding]:
    """Whether the kernel thinks that its clock is right: records, delays and retention go by it."""
    try:
        synchronised = clock_is_synchronised()
    except OSError as error:
        yield Finding("clock", "warning", f"the kernel does not tell whether the clock is right: {error.strerror}")
        return
    if synchronised:
        yield Finding("clock", "ok", "synchronised")
    else:
        advice = "run chrony or systemd-timesyncd; in a container, on its host"
        yield Finding("clock", "warning", "the kernel says that the clock is not synchronised", advice)


def certificate(path: str, key: str) -> Iterator[Finding]:
    """Whether the doors that speak TLS can, and how long. Nothing to say without TLS."""
    if not path and not key:
        return
    try:
        left_s = valid_until(path, key) - time.time()
    except InvalidCertificate as error:
        yield Finding("certificate", "bad", error.message, "mend or renew it: doors use new files without a restart")
        return
    days = round(left_s / 86400)
    says = f"{path} is valid for {days} more day{'s' if days != 1 else ''}"
    if left_s < RENEWAL_S:
        yield Finding("certificate", "warning", says, "renew it: doors use new files without a restart")
    else:
        yield Finding("certificate", "ok", says)


def logs(data: Path) -> Iterator[Finding]:
    """What earlier failures left beside logs. The records themselves are read by `penstock log verify`."""
    poisoned = 0
    for path in sorted({each.parent for each in data.glob(f"{TOPICS}/*/*/poison")} | {data / "metadata"}):
        said = poison.text(Files(), str(path))
        if said is not None:
            poisoned += 1
            advice = "check the disk (dmesg, SMART); then restart the broker, which keeps what was durable"
            yield Finding("logs", "bad", f"{path}: {said.strip()}", advice, "damage")
    if (data / DOUBTS).exists() and (data / DOUBTS).stat().st_size:
        says = "a keeper was killed in a sync that was never answered; the broker knows which logs"
        yield Finding("logs", "warning", says, "penstock log verify, when there is time")
    damaged = (data / DAMAGED).exists()
    if damaged:
        says = f"this node of a cluster has lost records, and takes no part until it has fetched them: {data / DAMAGED}"
        yield Finding("logs", "bad", says, "start it and let the others be reached; check the disk (dmesg)", "damage")
    if not poisoned and not damaged:
        yield Finding("logs", "ok", "no failed sync is on record; penstock log verify reads all records")


def served_at(data: Path) -> str:
    """Where this machine reaches the broker that has the directory open, as its lock says; "" without one."""
    try:
        holder = lock.holder_of((data / layout.LOCK).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return ""
    return holder.local if holder.boot == f"{boot_id():032x}" and is_alive(holder.pid) else ""


def of_stats(stats: Mapping[str, Any]) -> Iterator[Finding]:
    """What a running broker says of itself."""
    stuck = ("outbox", "stages", "barriers")
    copies, stages, callbacks = (str(stats.get(f"{name}.stuck_because") or "") for name in stuck)
    watched: list[tuple[str, str, Kind, str]] = [
        ("partitions.poisoned", "partitions that a failed sync closed", "damage", "mend the disk, then restart it"),
        ("scrub.rotten", "logs with closed segments that do not verify", "damage", "penstock log verify says where"),
        ("partitions.damaged", "damaged partitions", "damage", "penstock log verify says where"),
        ("outbox.stuck", "copies to other partitions that cannot go on", "other", copies),
        ("stages.stuck", "transactions that cannot be published", "other", stages),
        ("barriers.stuck", "partitions of callbacks that cannot hear that tasks have ended", "other", callbacks),
        ("snapshots.failed", "snapshots that were not written", "space", "see its log; the next start takes longer"),
        ("retention.failed", "looks at logs that met unreadable files", "damage", "penstock log verify says where"),
    ]  # fmt: skip
    found = False
    for counter, what, kind, advice in watched:
        if stats.get(counter):
            found = True
            yield Finding("broker", "bad", f"{what}: {stats[counter]:,}", advice, kind)
    for counter, what, advice in (
        ("connections.refused", "connections refused for want of descriptors", "raise LimitNOFILE"),
        (
            "lending.refused",
            "producers that appended by themselves what could not stand",
            "look for a program that writes its files",
        ),
        ("clock.ahead_us", "microseconds that the clock is behind the log, as it was set back", "correct the clock"),
    ):
        if stats.get(counter):
            found = True
            yield Finding("broker", "warning", f"{what}: {stats[counter]:,}", advice)
    if not found:
        follows = stats.get("cluster.leads") == 0
        topics = stats.get("topics", 0)
        serves = f"serves {topics} topic{'s' if topics != 1 else ''}"
        says = "follows the leader of its cluster" if follows else serves
        yield Finding("broker", "ok", says)


def _file_system(path: Path) -> str:
    """The type of the file system that a path is on; "" where the kernel does not tell."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return ""
    resolved = path.resolve()
    above = [(place, kind) for _, place, kind, *_ in mounts if resolved.is_relative_to(place)]
    return max(above, key=lambda each: len(each[0]))[1] if above else ""
