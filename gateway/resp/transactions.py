"""MULTI, EXEC and DISCARD: commands that are kept, and run one after the other.

Contract: EXEC answers all of them in one array. It does not make them one: a crash of the gateway may come between two
of them, and others' records may come between. Bounded in bytes by what one command may have. Pure.
"""

from __future__ import annotations

from typing import Any

from .command import Command, RespSession
from .refusals import CommandRefused
from .replies import Status

_OWN = ("MULTI", "EXEC", "DISCARD", "QUIT", "RESET", "WATCH")
_OVERHEAD_BYTES = 64
"""Of a word that is kept, about."""


class QueuedCommands:
    """The kept commands of one connection."""

    __slots__ = ("_broken", "_bytes", "_bytes_max", "_kept")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: list[list[bytes]] | None = None
        self._bytes = 0
        self._broken = False

    @property
    def size(self) -> int:
        """About how many bytes are kept."""
        return self._bytes

    def takes(self, name: str) -> bool:
        """Whether a command is to be kept rather than run."""
        return self._kept is not None and name not in _OWN

    def queue(self, words: list[bytes]) -> Any:
        """Keep a command. Raises CommandRefused when there are too many."""
        assert self._kept is not None, "MULTI came before"
        self._bytes += sum(map(len, words)) + _OVERHEAD_BYTES * len(words)
        if self._bytes > self._bytes_max:
            self._broken = True
            self._kept.clear()
            raise CommandRefused(f"a transaction has {self._bytes_max} bytes at most: send it in parts")
        self._kept.append(words)
        return Status("QUEUED")

    def refused(self) -> None:
        """A command was refused: EXEC will be, if this is a transaction."""
        self._broken = self._kept is not None

    def begin(self) -> Any:
        """MULTI."""
        if self._kept is not None:
            raise CommandRefused("MULTI calls can not be nested")
        self._kept = []
        return Status("OK")

    def give_up(self) -> Any:
        """DISCARD."""
        if self._kept is None:
            raise CommandRefused("DISCARD without MULTI")
        self.discard()
        return Status("OK")

    def execute(self) -> list[list[bytes]]:
        """The kept commands, which are to be run now. Raises CommandRefused."""
        if self._kept is None:
            raise CommandRefused("EXEC without MULTI")
        kept, broken = self._kept, self._broken
        self.discard()
        if broken:
            raise CommandRefused("Transaction discarded because of previous errors.", "EXECABORT")
        return kept

    def discard(self) -> None:
        """Be outside of a transaction."""
        self._kept, self._bytes, self._broken = None, 0, False


def _by_the_connection(session: RespSession, arguments: list[bytes]) -> Any:
    """The connection itself runs these, because they are about the commands it keeps."""
    raise AssertionError("the connection runs it")


COMMANDS = [
    Command(
        "MULTI", 1, _by_the_connection, "transactions", "MULTI",
        "Keeps the commands that follow, for EXEC to run them in turn (not as one: see Limits)", flags=("fast",),
    ),
    Command(
        "EXEC", 1, _by_the_connection, "transactions", "EXEC", "Runs what was kept, with one array of replies",
    ),
    Command("DISCARD", 1, _by_the_connection, "transactions", "DISCARD", "Drops what was kept", flags=("fast",)),
]  # fmt: skip
