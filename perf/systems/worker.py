"""A worker of a queue: `python -m perf.systems.worker <plan>`. It works until its standard input ends.

Contract: prints one line when it is connected. Its count of finished tasks is at its place in the mapped tally.
"""

from __future__ import annotations

import json
import mmap
import select
import sys

from . import queue_named
from .workers import Plan


def main(text: str) -> None:
    plan = Plan(**json.loads(text))
    with (
        open(plan.tally, "r+b") as file,
        mmap.mmap(file.fileno(), 0) as tally,
        memoryview(tally) as view,
        view.cast("Q") as numbers,
        queue_named(plan.name).worker(plan.address, plan.queue, plan.batch) as work,
    ):
        print("ready", flush=True)
        while True:
            finished = work()
            numbers[plan.place] += finished
            if not finished and select.select([sys.stdin], [], [], 0)[0]:
                return


if __name__ == "__main__":
    main(sys.argv[1])
