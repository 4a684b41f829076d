"""Starts and ends the supervisor's child processes.

Idea: a child is a module that Python runs, `penstock.broker --role ...`, with the descriptors it needs inherited. It is
spawned, never forked from a process that may have ZeroMQ threads, and watched through a pidfd, so that its end wakes a
poll.

Contract: `kill` waits until the process is gone (SIGKILL also ends a stopped process). A child never hears of SIGHUP
and SIGINT, which a terminal or a program sends to the whole group: they are the supervisor's. Must not know: why a
child is started or ended.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from .config import ServeConfig
from .log_levels import SIGNALS
from .packets import PacketSocket

MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(64 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}
"""How much freed memory a child keeps, in bytes, unless its environment says otherwise. By itself glibc gives a
buffer of a MiB back at once, and faulting it in again costs as much as all that is done with it. Others ignore this."""


class Child:
    """One running process. `log_level` is what it was told last."""

    def __init__(self, role: str, arguments: Sequence[str], descriptors: dict[str, int]) -> None:
        """Start it with `descriptors` by name; they are closed here afterwards, whatever happens.

        `arguments`: a module of Python, and what it is given. Raises OSError where the system can start none now.
        """
        self.role = role
        self.log_level = ""
        options = [f"--{name}={descriptor}" for name, descriptor in descriptors.items()]
        command = [sys.executable, "-P", "-m", *arguments, *options]
        inherited = tuple(descriptors.values())
        # A child inherits that, from its first moment. Systems without these signals load this module, too.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGHUP, signal.SIGINT))
        try:
            self._process = subprocess.Popen(
                command, env={**MALLOC, **os.environ}, pass_fds=inherited,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            for descriptor in inherited:
                os.close(descriptor)
        self.pid = self._process.pid
        try:
            self.fd = os.pidfd_open(self.pid)
        except OSError:  # no descriptor left: it is not to run unwatched
            self.kill()
            raise

    def ended(self) -> bool:
        """Whether it has ended; it is reaped then."""
        return self._process.poll() is not None

    @property
    def how(self) -> str:
        """How it ended, for people."""
        code = self._process.returncode
        return f"exit code {code}" if code is None or code >= 0 else f"signal {signal.Signals(-code).name}"

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def tell_level(self, level: str) -> None:
        """Have it log at this level, unless it does."""
        if self.log_level != level:
            self.log_level = level
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.fd, SIGNALS[level])

    def terminate(self) -> None:
        """Ask it to end in good order."""
        self._process.terminate()

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end. False when it did not come."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill_nowait(self) -> None:
        """End it now. It is gone once `ended`."""
        self._process.kill()

    def kill(self) -> None:
        """End it now, and wait until it is gone."""
        self.kill_nowait()
        self._process.wait()

    def close(self) -> None:
        """Close the pidfd."""
        os.close(self.fd)


def part_of_broker(role: str, config: ServeConfig) -> list[str]:
    """The arguments of a broker or a keeper."""
    return ["penstock.broker", f"--role={role}", f"--parent={os.getpid()}", f"--config={config.to_json()}"]


def link_descriptors() -> tuple[Sequence[int], dict[str, int]]:
    """A fresh link: the broker's descriptors in the order NewKeeper has them, and the keeper's by name."""
    ours, theirs = PacketSocket.pair()
    doorbell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    bell_back = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    keeper = {"link": theirs, "doorbell": os.dup(doorbell), "bell-back": os.dup(bell_back)}
    return (ours, doorbell, bell_back), keeper
