"""Steps at which a worker of Celery kills its own process, each once for all workers of a folder.

    kills = Kills(tmp_path, ["stored.before:2", "acked.after:1"])    # at the second call of a process, at the first
    CeleryWorker(shop, "solo", log, kills=kills)
    kills.left()                                                      # those that no process came to yet

Contract: all of the adapter's own code runs; around the functions of STEPS stand counters. With the pool `prefork` some
steps are the main process's and others its children's.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any

from penstock.adapters.celery.channel import KombuChannel
from penstock.adapters.celery.deliveries import Deliveries
from penstock.adapters.celery.feeds import QueueFeed
from penstock.adapters.celery.results import PenstockBackend

STEPS: dict[str, tuple[type, str]] = {
    "leased": (QueueFeed, "_next"),
    "delivered": (QueueFeed, "deliver"),
    "stored": (PenstockBackend, "set"),
    "counted": (PenstockBackend, "incr"),
    "published": (KombuChannel, "_put"),
    "acked": (Deliveries, "ack"),
    "given back": (Deliveries, "reject"),
}
"""What a worker does with a message, in this order; the first two and the last two in its main process."""

MOMENTS = ("before", "after")
KILLS = "CELERY_SHOP_KILLS"


class Kills:
    """What is to be killed, and what was."""

    def __init__(self, folder: Path, places: Sequence[str]) -> None:
        self._folder, self._places = folder / "kills", list(places)
        self._folder.mkdir()

    def left(self) -> list[str]:
        """The places at which nothing was killed yet."""
        return [place for place in self._places if not (self._folder / place).exists()]

    def environment(self) -> dict[str, str]:
        """What a worker is told."""
        return {KILLS: json.dumps([str(self._folder), self._places])}


def arm() -> None:
    """In a worker: kill this process, or a child of it, at the steps that it was told."""
    folder, places = json.loads(os.environ.get(KILLS, '["", []]'))
    for place in places:
        where, _, nth = place.partition(":")
        step, _, moment = where.partition(".")
        owner, name = STEPS[step]
        setattr(owner, name, _killing(getattr(owner, name), moment, int(nth), Path(folder, place)))


def _killing(function: Callable[..., Any], moment: str, nth: int, mark: Path) -> Callable[..., Any]:
    calls = count(1)

    @wraps(function)
    def counted(*arguments: Any, **options: Any) -> Any:
        due = next(calls) >= nth
        if due and moment == "before":
            _kill_once(mark)
        answer = function(*arguments, **options)
        if due and moment == "after":
            _kill_once(mark)
        return answer

    return counted


def _kill_once(mark: Path) -> None:
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
