"""Several groups that read one topic at once, each in a process of its own.

Idea: groups share nothing, so their joint cost is that of the broker and the machine. Every process connects and
joins; when all have, all are told to go, and the time runs until the last one has read everything.

Contract: `python -m perf.load.readers <url> <topic> <delivery> <group> <count>` prints a line when it is ready, reads
when it is told to, prints a line when it is done, and ends when its standard input closes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack

from ..lab.children import child

START = "go"


def together_records_per_s(url: str, topic: str, delivery: str, groups: list[str], count: int) -> float:
    """Records handed out to all groups together, per second."""
    with ExitStack() as stack:
        readers = [
            stack.enter_context(child("perf.load.readers", url, topic, delivery, group, str(count))) for group in groups
        ]
        for reader in readers:
            _heard(reader)
        begun = time.perf_counter()
        for reader in readers:
            assert reader.stdin
            reader.stdin.write(f"{START}\n")
            reader.stdin.flush()
        for reader in readers:
            _heard(reader)
        return len(groups) * count / (time.perf_counter() - begun)


def _heard(reader: subprocess.Popen[str]) -> None:
    assert reader.stdout
    if not reader.stdout.readline():
        raise RuntimeError("a reader ended early; its reason is above")


def main(url: str, topic: str, delivery: str, group: str, count: str) -> None:
    import penstock

    left = int(count)
    with penstock.connect(url) as client, client.consumer(topic, group=group, delivery=delivery) as consumer:
        print("ready", flush=True)
        if sys.stdin.readline().strip() != START:
            return
        for records in consumer.batches(wait=60.0):
            if (left := left - len(records)) <= 0:
                break
        if left > 0:
            raise RuntimeError(f"{left} records of {count} did not come within a minute")
        print("done", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
