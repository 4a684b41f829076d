"""Stages: records staged for transactions under random producer ids, until they are published or dropped.

Idea: a stage counts its records as a producer's are counted, so resends are deduplicated, and it remembers its
batches. Publishing takes these in order, one at a time, and appends each as a records batch under the same id; a stage
is dropped from the table after its last record.

Contract: `judge` decides and changes nothing; the others apply logged effects and decide nothing, so replay gives the
same table. Only committed batches have a place. Memory: a pair of numbers per run of neighbouring batches. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from ...errors import SequenceGap, UnknownProducer

NO_SEQ = 1 << 62
"""A seq beyond all others."""


class Staged(Struct, frozen=True, gc=False):
    """The part of a stage in one batch of kind STAGED."""

    records: int
    bytes: int


class Stage(Struct, array_like=True):
    """One stage of one partition. Invariant: once something is published, nothing more is staged."""

    stage: int  # the producer id of its batches
    next_sequence: int
    records: int  # that stand in the log; fewer than `next_sequence` where damage took some
    published: int  # how many of them, from the first one on
    runs: list[tuple[int, int]]  # (first seq, how many) of the batches that are not published
    bytes: int  # of all of its batches
    last_us: int  # append time of the last one
    owner: str = ""  # the user that alone goes on with it; "" for none, which any may

    @property
    def last_seq(self) -> int:
        """The last batch that is not published; 0 without any."""
        return sum(self.runs[-1]) - 1 if self.runs else 0


class StageTable:
    """All stages of one partition."""

    def __init__(self) -> None:
        self.by_id: dict[int, Stage] = {}

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, stage_id: int) -> bool:
        return stage_id in self.by_id

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.by_id.values())

    def get(self, stage_id: int) -> Stage | None:
        """One stage; None when there is none, or none any more."""
        return self.by_id.get(stage_id)

    def judge(self, stage_id: int, first_sequence: int, count: int) -> bool:
        """Whether a batch is the next one of its stage; False for one that was staged before.

        Raises SequenceGap, UnknownProducer.
        """
        stage = self.by_id.get(stage_id)
        if stage is None:
            if first_sequence:
                raise UnknownProducer(
                    f"stage {stage_id:#x} is unknown here and goes on at record {first_sequence}: "
                    "it was dropped or never began, stage everything again under a new id"
                )
            return True
        if first_sequence == stage.next_sequence:
            return True
        if first_sequence + count <= stage.next_sequence:
            return False
        raise SequenceGap(
            f"stage {stage_id:#x} has {stage.next_sequence} records, and {count} came that begin at number "
            f"{first_sequence}: they follow or repeat no batch of it"
        )

    def staged(self, stage_id: int, first_sequence: int, staged: Staged, time_us: int) -> None:
        """A batch of a stage stands in the log, or will."""
        stage = self.by_id.get(stage_id)
        if stage is None:
            stage = self.by_id[stage_id] = Stage(stage_id, 0, 0, 0, [], 0, 0)
        stage.next_sequence = first_sequence + staged.records
        stage.records += staged.records
        stage.bytes += staged.bytes
        stage.last_us = time_us

    def owned(self, stage_id: int, owner: str, time_us: int) -> None:
        """A stage has an owner, perhaps before its first batch."""
        stage = self.by_id.get(stage_id)
        if stage is None:
            stage = self.by_id[stage_id] = Stage(stage_id, 0, 0, 0, [], 0, time_us)
        stage.owner = owner

    def owner(self, stage_id: int) -> str:
        """The owner of a stage; "" for one without, or that is not there."""
        stage = self.by_id.get(stage_id)
        return "" if stage is None else stage.owner

    def placed(self, stage_id: int, seq: int) -> None:
        """Its batch is committed, at this place."""
        runs = self.by_id[stage_id].runs
        if runs and sum(runs[-1]) == seq:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((seq, 1))

    def published(self, stage_id: int, first_sequence: int, count: int) -> None:
        """The records of its next batch stand in the log as records."""
        stage = self.by_id[stage_id]
        stage.published = first_sequence + count
        if stage.published >= stage.next_sequence:
            del self.by_id[stage_id]
        elif stage.runs:
            first, many = stage.runs[0]
            stage.runs[:1] = [(first + 1, many - 1)] if many > 1 else []

    def dropped(self, stage_ids: Iterable[int]) -> None:
        """Remove dropped stages."""
        for stage_id in stage_ids:
            self.by_id.pop(stage_id, None)

    def lost(self, seqs: range) -> None:
        """Remove batches whose loss was accepted. The rest of their stages can still be published."""
        for stage in self.by_id.values():
            before = sum(many for _, many in stage.runs)
            stage.runs = [piece for run in stage.runs for piece in _without(run, seqs)]
            stage.records -= before - sum(many for _, many in stage.runs)  # one each at least: it is not whole

    def unplaced(self) -> StageTable:
        """The same for what gets ahead of this: without where batches stand, which that will not know."""
        table = StageTable()
        for stage in self.by_id.values():
            table.by_id[stage.stage] = Stage(
                stage.stage,
                stage.next_sequence,
                stage.records,
                stage.published,
                [],
                stage.bytes,
                stage.last_us,
                stage.owner,
            )
        return table

    @property
    def first_seq(self) -> int:
        """The first batch that may still be published; NO_SEQ without any."""
        return min((stage.runs[0][0] for stage in self.by_id.values() if stage.runs), default=NO_SEQ)

    @property
    def bytes(self) -> int:
        """Bytes of all stages."""
        return sum(stage.bytes for stage in self.by_id.values())

    def dump(self) -> list[Stage]:
        """Dump for a snapshot, in a fixed order."""
        return sorted(self.by_id.values(), key=lambda stage: stage.stage)

    @classmethod
    def load(cls, stages: list[Stage]) -> StageTable:
        """Restore from a snapshot."""
        table = cls()
        table.by_id = {stage.stage: stage for stage in stages}
        return table


def _without(run: tuple[int, int], seqs: range) -> Iterator[tuple[int, int]]:
    """The seqs before and behind some seqs."""
    first, end = run[0], sum(run)
    if first < min(end, seqs.start):
        yield first, min(end, seqs.start) - first
    if max(first, seqs.stop) < end:
        yield max(first, seqs.stop), end - max(first, seqs.stop)
