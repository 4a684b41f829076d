"""Ctrl-C at a chosen moment: where Python looks for signals, when a function begins and when a call returns."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

TREE = Path(__file__).resolve().parents[2]


class InterruptAt:
    """Inside its `with`, the nth of these moments raises KeyboardInterrupt in this thread; it counts them all.

    `inside`: only moments in these folders of the tree and below count. The collector rests meanwhile: what it frees of
    earlier tests is no moment of this one.
    """

    def __init__(self, nth: int, inside: tuple[str, ...] = ("",)) -> None:
        self.nth = self.left = nth
        self._inside = tuple(os.path.realpath(TREE / folder) for folder in inside)
        self._counts: dict[str, bool] = {}  # by file

    @property
    def came(self) -> bool:
        return self.left <= 0

    def _see(self, frame: FrameType, event: str, what: Any) -> None:
        if event not in ("call", "c_return") or what == sys.setprofile:
            return
        file = frame.f_code.co_filename
        if (counts := self._counts.get(file)) is None:
            counts = self._counts[file] = os.path.realpath(file).startswith(self._inside)
        if not counts:
            return
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt

    def __enter__(self) -> InterruptAt:
        self._collects = gc.isenabled()
        gc.disable()
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        if self._collects:
            gc.enable()


class ExpectedInterrupt(InterruptAt):
    """One that the test goes on after: its `with` swallows it."""

    def __enter__(self) -> ExpectedInterrupt:
        super().__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *rest: object) -> bool:
        super().__exit__(kind, *rest)
        return kind is KeyboardInterrupt and self.came


def interrupts(inside: tuple[str, ...], *, stride: int = 1, above: int) -> Iterator[ExpectedInterrupt]:
    """An interrupt at the first moment, then at later ones, for one `with` each, until one ends before it comes.

    Fails unless there are more than `above` moments: they would be in other places than `inside` says.
    """
    nth, came = 1, True
    while came:
        interrupt = ExpectedInterrupt(nth, inside)
        yield interrupt
        came, nth = interrupt.came, nth + stride
    assert nth > above


def left_open() -> tuple[list[str], list[str]]:
    """What this process has open, and its threads, once what nothing leads to is collected."""
    gc.collect()
    opened: list[str] = []
    for number in os.listdir("/proc/self/fd"):
        try:
            opened.append(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
        except FileNotFoundError:
            continue  # that of the listing
    return sorted(opened), sorted(thread.name for thread in threading.enumerate() if thread.is_alive())
