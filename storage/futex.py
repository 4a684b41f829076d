"""Sleeping on a word of shared memory until another process wakes the sleepers (futex, through the C library).

    sleeper   word := a number of its own; fence; nothing new? FUTEX_WAIT while the word is still that number
    waker     (publish;) fence; word not 0? word := 0, FUTEX_WAKE all

Idea: the fences make one of the two see the other: the sleeper what was published, or the waker the sleeper. Numbers
of their own let any number of threads and processes share a word: a sleeper that finds another's number looks again
instead of sleeping through a wake. `tests/storage/test_futex_model.py` walks every order.

Contract: 0 is stored only together with a wake of all. A process that writes other values here costs the sleepers
spurious wakes, or a missed one: sleeps are bounded. The memory stays mapped as long as the futex lives.
Must not know: what is published.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import platform
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from math import ceil
from typing import Any

from . import forks
from .errors import BoardUnavailable

WORD_BYTES = 4

_WAIT, _WAKE = 0, 1  # without FUTEX_PRIVATE_FLAG: the sleeper is another process
_ALL = 0x7FFFFFFF
_WORD_MAX = 0xFFFFFFFF
_CALL_OF_MACHINE = {"x86_64": 202, "aarch64": 98}

_machine = platform.machine()
_is_known = sys.platform == "linux" and sys.maxsize > 1 << 32 and _machine in _CALL_OF_MACHINE
_CALL = _CALL_OF_MACHINE[_machine] if _is_known else -1

MISSING = "" if _is_known else f"mapped readers cannot be woken on {sys.platform} {_machine}: use delivery='auto'"
"""Why futexes are unavailable here; "" if they are available."""


class _Moment(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


@lru_cache(maxsize=2048)  # a sleeper mostly says how long as it did before
def _moment(milliseconds: int) -> Any:
    """How long to sleep, as the kernel takes it, which only reads it: any thread may say the same."""
    return ctypes.byref(_Moment(milliseconds // 1000, milliseconds % 1000 * 1_000_000))


if _is_known:
    # Without `argtypes`, which would double the cost of a call.
    _sleep = ctypes.CDLL(None).syscall
    _wake = ctypes.PyDLL(None).syscall  # does not block: handing the interpreter to another thread would cost more

_own = ctypes.c_uint32(0)  # a word without sleepers


def _count_from_anywhere() -> None:
    """Begin at another number than other processes: forked children would all go on from their parent's."""
    global _numbers
    _numbers = itertools.count(int.from_bytes(os.urandom(WORD_BYTES), "little"))


_count_from_anywhere()
forks.in_child(_count_from_anywhere)


def _fence_by_lock() -> None:
    """Fence by a lock: on x86-64 each locked instruction is a fence, and taking a lock has one."""
    threading.Lock().acquire()  # of its own, as Ctrl-C or a fork could leave a shared one taken


def _fence_by_call() -> None:
    """The kernel has a full barrier before it looks for sleepers."""
    _wake(_CALL, ctypes.byref(_own), _WAKE, 1)


fence = _fence_by_lock if _machine == "x86_64" else _fence_by_call
"""Stores before it are seen by other processors before loads behind it are done."""


class Futex:
    """One word."""

    __slots__ = ("_address", "_held", "_word")

    def __init__(self, memory: memoryview) -> None:
        """`memory` is WORD_BYTES of writable memory, aligned. Raises BoardUnavailable where there are no futexes."""
        if MISSING:
            raise BoardUnavailable(MISSING)
        self._held = ctypes.c_uint32.from_buffer(memory)
        self._word = memory.cast("I")
        self._address = ctypes.c_void_p(ctypes.addressof(self._held))

    def sleep(self, seconds: float, still: Callable[[], bool]) -> None:
        """Sleep until woken, a signal comes, or the time is over; not at all if `still()` denies that nothing is new.

        `still` is called once wakers see that this thread is about to sleep. The caller looks what is true then.
        """
        self._word[0] = number = next(_numbers) & _WORD_MAX or 1
        fence()
        if not still():
            return
        # Whatever it answers (woken, another number, time over, interrupted), the caller looks again.
        _sleep(_CALL, self._address, _WAIT, ctypes.c_uint32(number), _moment(ceil(seconds * 1000)))

    @property
    def is_raised(self) -> bool:
        """Whether a sleeper may be asleep."""
        return self._word[0] != 0

    def wake(self) -> None:
        """Wake all that sleep, or are about to and may not have seen what was published before this call."""
        fence()
        if self._word[0]:
            self._word[0] = 0
            _wake(_CALL, self._address, _WAKE, _ALL)

    def wake_all(self) -> None:
        """Wake all sleepers regardless of the word."""
        self._word[0] = 0
        _wake(_CALL, self._address, _WAKE, _ALL)
