"""The table of a `__txn` partition: decided epochs of transactions, and those not yet published.

Idea: the table keeps the last decided epoch of each transaction (a name), so committing it again changes nothing. It
keeps the stages of an epoch until all are published, so that the next start resumes publishing.

Contract: applies logged effects and decides nothing, so replay gives the same table. Memory: an entry per name, and
the stages of unfinished epochs; the leader bounds both. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile

from msgspec import Struct, msgpack
from xxhash import xxh3_64_intdigest

from . import effects as fx

FLEETING = "~"
"""Prefix of names of one-time transactions, which are forgotten soon."""

StageKey = tuple[bytes, int, int]
"""Topic id, partition, stage id."""


class Decision(Struct, array_like=True, frozen=True):
    """One decided epoch whose stages are not all known to be published."""

    epoch: int
    time_us: int
    stages: list[StageKey]


class TransactionState(Struct, array_like=True):
    """One transaction."""

    name: str
    epoch: int  # the last one decided
    time_us: int  # when that was
    unfinished: list[Decision] = []  # in the order in which they were decided
    stages: int = 0  # `fingerprint` of those of that epoch
    owner: str = ""  # the user that alone commits further epochs; "" for none, which any may


def fingerprint(stages: Iterable[StageKey]) -> int:
    """Stands for these stages, in any order; 0 for none, or where a snapshot does not know. Their ids are random."""
    ordered = sorted(stages)
    return xxh3_64_intdigest(msgpack.encode(ordered)) if ordered else 0


class TransactionTable:
    """All transactions of one partition of `__txn`.

    Invariant: each name stands in one of the two orders, behind those whose last decision was before its own.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, TransactionState] = {}
        self._lasting: dict[str, None] = {}
        self._fleeting: dict[str, None] = {}
        self._unfinished: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self.by_name)

    def last_epoch(self, name: str) -> int:
        """The epoch that was decided last; -1 when none is known."""
        known = self.by_name.get(name)
        return -1 if known is None else known.epoch

    def owner(self, name: str) -> str:
        """The owner of a transaction; "" for one without, or that is not known."""
        known = self.by_name.get(name)
        return "" if known is None else known.owner

    def is_last(self, name: str, epoch: int, stages: Sequence[StageKey]) -> bool:
        """Whether just these stages, and some, are what the last epoch was decided with."""
        known = self.by_name.get(name)
        return known is not None and known.epoch == epoch and known.stages == fingerprint(stages) != 0

    def decided(self, effect: fx.TransactionDecided, time_us: int) -> None:
        """An epoch is decided, for good. Without stages it is also finished."""
        name = effect.transaction
        known = self.by_name.get(name)
        if known is None:
            known = self.by_name[name] = TransactionState(name, 0, 0)
        known.epoch, known.time_us, known.stages = effect.epoch, time_us, fingerprint(effect.stages)
        known.owner = effect.owner
        if effect.stages:
            known.unfinished.append(Decision(effect.epoch, time_us, effect.stages))
            self._unfinished[name] = None
        order = self._order(name)
        order.pop(name, None)
        order[name] = None

    def finished(self, name: str, epoch: int) -> None:
        """All stages of an epoch are published."""
        known = self.by_name.get(name)
        if known is not None:
            # No leader says it twice, and the list ascends, so `>=` differs only in a table that is tested alone.
            places = (place for place, decision in enumerate(known.unfinished) if decision.epoch == epoch)
            place = next(places, None)  # mostly the first one
            if place is not None:
                del known.unfinished[place]
            if not known.unfinished:
                self._unfinished.pop(name, None)

    def forgotten(self, names: Iterable[str]) -> None:
        """Forget these names."""
        for name in names:
            self.by_name.pop(name, None)
            self._order(name).pop(name, None)
            self._unfinished.pop(name, None)

    # -- looking ------------------------------------------------------------------------------------

    def unfinished(self) -> list[tuple[str, Decision]]:
        """Unpublished epochs, in the order of their decisions."""
        found = [(name, each) for name in self._unfinished for each in self.by_name[name].unfinished]
        return sorted(found, key=lambda each: (each[1].time_us, each[0], each[1].epoch))

    def outlived(self, lasting_us: int, fleeting_us: int, most: int) -> list[str]:
        """Finished names of which nothing was decided since a time (of either sort), the oldest of each first."""
        found = [*self._older(self._lasting, lasting_us), *self._older(self._fleeting, fleeting_us)]
        return list(islice((name for name in found if name not in self._unfinished), most))

    def oldest_fleeting(self, most: int) -> list[str]:
        """Finished one-time names, the oldest first."""
        return list(islice((name for name in self._fleeting if name not in self._unfinished), most))

    def _older(self, order: dict[str, None], time_us: int) -> Iterator[str]:
        return takewhile(lambda name: self.by_name[name].time_us < time_us, order)

    def _order(self, name: str) -> dict[str, None]:
        return self._fleeting if name.startswith(FLEETING) else self._lasting

    # -- snapshots ----------------------------------------------------------------------------------

    def dump(self) -> list[TransactionState]:
        """Dump for a snapshot, in a fixed order."""
        return sorted(self.by_name.values(), key=lambda each: each.name)

    @classmethod
    def load(cls, transactions: list[TransactionState]) -> TransactionTable:
        """Restore from a snapshot."""
        table = cls()
        for each in sorted(transactions, key=lambda each: each.time_us):
            table.by_name[each.name] = each
            table._order(each.name)[each.name] = None
            if each.unfinished:
                table._unfinished[each.name] = None
        return table
