"""Peers beside a figure: who stands there, and what is sampled of them. The peer here is a list in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from perf.lab.harness import Lab
from perf.lab.rows import Absent
from perf.load import peers
from perf.load.loads import Load
from perf.systems.bare import Bare


class Kept:
    """A system that keeps streams in a dictionary, and counts what was asked of it."""

    name = "kept"
    durabilities = frozenset({"written"})
    chunk = 1000

    def __init__(self, missing: str = "", forgets: int = 0) -> None:
        self.missing = missing
        self.forgets = forgets
        self.streams: dict[str, list[bytes]] = {}
        self.served: list[tuple[bool, str]] = []
        self.sends = 0

    def absent(self) -> str:
        return self.missing

    @contextmanager
    def serve(self, directory: Path, durability: str) -> Iterator[str]:
        self.served.append((directory.is_dir(), durability))
        yield "address"
        self.served.append((directory.is_dir(), "stopped"))

    def create(self, address: str, stream: str) -> None:
        assert address == "address"
        assert stream not in self.streams
        self.streams[stream] = []

    def produce(self, address: str, stream: str, values: Sequence[bytes]) -> None:
        self.streams[stream] += values

    def consume(self, address: str, stream: str, count: int) -> Sequence[bytes]:
        return self.streams[stream][: count - self.forgets]

    @contextmanager
    def acknowledged(self, address: str, stream: str):
        def send(values: Sequence[bytes]) -> None:
            self.sends += 1
            self.streams[stream] += values

        yield send


@pytest.fixture
def lab(tmp_path) -> Lab:
    return Lab(tmp_path, 1, 1.0)


def beside(monkeypatch, system: Kept) -> Kept:
    monkeypatch.setattr(peers, "peers", lambda: [system])
    return system


def test_neither_penstock_nor_a_bare_socket_is_a_peer():
    names = [system.name for system in peers.peers()]
    assert len(set(names)) == len(names)
    assert not [name for name in names if "penstock" in name or "bare" in name]


def test_a_peer_is_absent_at_a_level_that_it_has_not(monkeypatch, lab):
    kept = beside(monkeypatch, Kept())
    with pytest.raises(Absent, match="only what is written"), peers.producing(lab, "durable")["kept"]():
        pass
    assert kept.served == []


def test_every_sample_has_a_stream_and_as_many_records_as_the_peer_is_fast(monkeypatch, lab):
    kept = beside(monkeypatch, Kept())
    with peers.producing(lab, "written")["kept"]() as sample:
        assert sample() > 0
        assert sample() > 0
    assert [len(stream) for stream in kept.streams.values()] == [1000, 1000]
    assert kept.served == [(True, "written"), (True, "stopped")]


def test_fewer_of_larger_records_are_sent(monkeypatch, lab):
    kept = beside(monkeypatch, Kept())
    with peers.producing(lab, "written", 64 << 10)["kept"]() as sample:
        sample()
    ((values),) = kept.streams.values()
    assert 20 <= len(values) < 100
    assert {len(value) for value in values} == {64 << 10}
    assert len(set(values)) == len(values)


def test_what_is_consumed_was_stored_and_is_all_there(monkeypatch, lab):
    beside(monkeypatch, Kept())
    with peers.consuming(lab, "written")["kept"]() as sample:
        assert sample() > 0


def test_a_peer_that_gives_back_too_little_has_no_figure(monkeypatch, lab):
    beside(monkeypatch, Kept(forgets=1))
    with peers.consuming(lab, "written")["kept"]() as sample, pytest.raises(RuntimeError, match="999 of 1000"):
        sample()


def test_acknowledgements_are_waited_for_one_by_one(monkeypatch, lab):
    kept = beside(monkeypatch, Kept())
    with peers.acknowledging(lab, "written", 7)["kept"]() as sample:
        assert sample() > 0
    assert kept.sends == 7


def test_a_peer_under_load_is_told_with_its_system(monkeypatch, lab):
    """The peer here is a bare socket that claims a level."""
    bare = Bare()
    monkeypatch.setattr(peers, "peers", lambda: [bare])
    told = []

    def keep(system, outcome):
        told.append((system, outcome.stream))
        return outcome.percentiles

    with peers.delivering(lab, "written", Load(200, 0.2, warm_s=0.0), keep)[bare.name]() as sample:
        assert sample().p50 > 0
        sample()
    assert [system for system, _ in told] == [bare, bare]
    assert len({stream for _, stream in told}) == 2


def test_a_peer_that_is_not_installed_is_absent_with_its_reason(monkeypatch, lab):
    kept = beside(monkeypatch, Kept(missing="no such server here"))
    with pytest.raises(Absent, match="no such server"), peers.producing(lab, "written")["kept"]():
        pass
    assert kept.served == []
