"""A named semaphore to sleep on, through the C library itself.

Idea: posix_ipc, which makes the semaphores, runs an application's signal handlers inside its wait and puts an error of
its own in the place of what they raise: `sys.exit` in a handler of SIGTERM would be lost. A call through ctypes comes
back interrupted and leaves handlers to the interpreter.

Contract: opens what exists, makes and removes nothing. Threads may sleep on one beside each other; it is closed only
when nobody does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time

_LIBRARY = ctypes.CDLL(None, use_errno=True)  # the C library, which every Linux process has


class _Moment(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


_open = _LIBRARY.sem_open
_open.restype = ctypes.c_void_p
_open.argtypes = (ctypes.c_char_p, ctypes.c_int)
try:
    _wait = _LIBRARY.sem_clockwait  # a wall clock that is set back would make a sleep as much longer
    _CLOCK = time.CLOCK_MONOTONIC
    _wait.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(_Moment))
except AttributeError:  # before glibc 2.30
    _wait = lambda handle, clock, moment: _LIBRARY.sem_timedwait(ctypes.c_void_p(handle), moment)  # noqa: E731
    _CLOCK = time.CLOCK_REALTIME
_post = _LIBRARY.sem_post
_post.argtypes = (ctypes.c_void_p,)
_close = _LIBRARY.sem_close
_close.argtypes = (ctypes.c_void_p,)

_ENDED = frozenset({0, errno.ETIMEDOUT, errno.EINTR})


class Semaphore:
    """One named semaphore that somebody else has made."""

    def __init__(self, name: str) -> None:
        """Raises OSError when it is not there or not ours to open."""
        self._handle = _open(name.encode(), 0)
        if not self._handle:
            raise _error(name)
        self._name = name

    def sleep(self, seconds: float) -> None:
        """Until somebody posts, a signal comes, or the time is over: whoever calls looks what is true then."""
        whole, part = divmod(time.clock_gettime(_CLOCK) + seconds, 1.0)
        until = _Moment(int(whole), int(part * 1e9))
        if _wait(self._handle, _CLOCK, ctypes.byref(until)) and ctypes.get_errno() not in _ENDED:
            raise _error(self._name)

    def post(self) -> None:
        """Wake one sleeper, now or when it comes."""
        _post(self._handle)

    def close(self) -> None:
        """Let go of it. Repeating it does nothing."""
        if self._handle:
            _close(self._handle)
            self._handle = None


def _error(name: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), name)
