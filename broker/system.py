"""Linux calls that Python has no name for, and process limits.

Contract: each function does one thing and raises OSError when the kernel refuses. Must not know its use.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal

_PR_SET_PDEATHSIG = 1
_GC_THRESHOLD = 50_000
_M_MMAP_THRESHOLD = -3
_LARGE_BYTES = 1 << 20
_TIMEX_BYTES = 512  # more than struct timex has anywhere
_TIME_ERROR = 5

_libc = ctypes.CDLL(None, use_errno=True)


def syncfs(descriptor: int) -> None:
    """Sync the file system that the descriptor is on. Errors are reported since Linux 5.8."""
    if _libc.syncfs(descriptor) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with_parent(parent_pid: int, number: signal.Signals = signal.SIGTERM) -> bool:
    """Be sent a signal when the parent process ends. False when it has ended already."""
    if _libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return os.getppid() == parent_pid


def clock_is_synchronised() -> bool:
    """Whether something keeps the kernel's clock right (NTP or PTP)."""
    state = _libc.adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))  # with no modes set, it only tells
    if state < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return state != _TIME_ERROR


def set_file_limit(most: int = 0) -> int:
    """Take as many descriptors as the machine's hard limit gives, or `most`. Returns how many that is."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(most, hard) if most else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def return_large_blocks() -> None:
    """Have the C library give memory of `_LARGE_BYTES` and more back to the system when it is freed.

    It would keep such blocks, up to 32 MiB each, after the first one was freed.
    """
    mallopt = getattr(_libc, "mallopt", None)  # of glibc
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def return_free_memory() -> None:
    """Have the C library give back all pages without anything in them: a tenth of a second for much memory."""
    trim = getattr(_libc, "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def calm_collector() -> None:
    """Freeze all live objects: the collector looks only at newer ones, and rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 20)
