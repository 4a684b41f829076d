"""Faults that a change could build into the rules of transactions, each of which the lives of a shard have to notice.

A mutant is a piece of source and what takes its place. `python -m support.transaction_mutants [NUMBER ...]` (with
`tests` on the path) runs lives over some mutants or all, each in a process of its own, and says what went wrong first.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import dataclass

from support.faulty import break_module
from support.sources import ROOT

LIVES = 100
STEPS = 250
CPU_SECONDS = 120


@dataclass(frozen=True)
class TransactionMutant:
    """`says`: the rule that it breaks. In `file`, `old` becomes `new`."""

    says: str
    file: str
    old: str
    new: str


_HERE, _TABLES = "broker/engine/transactions", "broker/engine/tables"

MUTANTS = [
    # what is decided
    TransactionMutant(
        "an epoch is decided once", f"{_HERE}/committing.py",
        "last_epoch(message.transaction) >= message.epoch:", "last_epoch(message.transaction) > message.epoch:",
    ),
    TransactionMutant(
        "of two requests under way one is decided", f"{_HERE}/committing.py",
        "if home.proposed.transactions.last_epoch", "if home.committed.transactions.last_epoch",
    ),
    TransactionMutant(
        "a later request is told that another one was decided", f"{_HERE}/committing.py",
        "repeated=not own)", "repeated=False)",
    ),
    TransactionMutant(
        "the request that was decided is not told that another one was", f"{_HERE}/committing.py",
        "repeated=not own)", "repeated=True)",
    ),
    TransactionMutant(
        "only other stages make a request for the epoch under way another one", f"{_HERE}/committing.py",
        "same is not None and same.stages == frozenset(keys)", "same is not None",
    ),
    TransactionMutant(
        "a stage is committed whole", f"{_HERE}/committing.py",
        "if not there.records == there.next_sequence == ahead.next_sequence == stage.records:", "if False:",
    ),
    TransactionMutant(
        "a stage that is there is committed", f"{_HERE}/committing.py",
        "if there is None or ahead is None:", "if there is None and ahead is None:",
    ),
    TransactionMutant(
        "a stage has one decision", f"{_HERE}/committing.py",
        "if stage.stage in self._commits.seals.of(partition) or there.published:", "if there.published:",
    ),
    TransactionMutant(
        "stages are looked at before they are decided", f"{_HERE}/committing.py",
        "if not self._are_durable([self._check(stage, principal) for stage in message.stages]):", "if False:",
    ),
    # what is sealed
    TransactionMutant(
        "a decided stage is not dropped", f"{_HERE}/staging.py",
        "if each in stages and each not in sealed]", "if each in stages]",
    ),
    TransactionMutant(
        "a decided stage does not expire", f"{_HERE}/forgetting.py",
        "if stage in head and stage not in sealed]", "if stage in head]",
    ),
    TransactionMutant(
        "a new leader seals what is decided", f"{_HERE}/commits.py",
        "self.seals.add(partition, key[2], None)", "pass",
    ),
    # what is published
    TransactionMutant(
        "a new leader publishes what is decided", f"{_HERE}/commits.py",
        "for _, home, name, decision in sorted(found", "for _, home, name, decision in sorted(found[:0]",
    ),
    TransactionMutant(
        "a new leader begins to publish", f"{_HERE}/commits.py",
        "self._alarms.set(self, 0, lambda _: self._publisher.go_on())", "pass",
    ),
    # what it adds up to
    TransactionMutant(
        "a decision keeps its stages until it is finished", f"{_TABLES}/decisions.py",
        "            self._unfinished[name] = None\n        order", "            pass\n        order",
    ),
]  # fmt: skip


def verdict(number: int) -> str:
    """What the lives say of a mutant, or `alive`."""
    command = [sys.executable, "-m", "support.transaction_mutants", "--run", str(number)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    ended = f"ended with {run.returncode}" if run.returncode else "alive"
    return run.stdout.strip() or run.stderr.strip()[-200:] or ended


def _run(mutant: TransactionMutant) -> int:
    """Lives over a mutant in this process, until one fails or takes for ever."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    break_module(mutant.file, mutant.old, mutant.new)
    from support.sim import failure

    for seed in range(LIVES):
        if found := failure(seed, STEPS, kind="transactions"):
            print(f"life {seed}: {found.splitlines()[-1][:150]}")
            return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--run"]:
        sys.exit(_run(MUTANTS[int(sys.argv[2])]))
    for at in map(int, sys.argv[1:] or range(len(MUTANTS))):
        print(f"{at}, {MUTANTS[at].says}: {verdict(at)}", flush=True)
