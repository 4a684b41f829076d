"""What the keeper says of rounds that named requests waited for, and what it does between rounds."""

from __future__ import annotations

import logging
import os
import socket

import pytest
from penstock.broker.config import KeeperOptions
from penstock.broker.keeper.messages import NAMED_MOST, Named, RemoveTree, Unlink
from penstock.broker.keeper.process import SLOW_S, KeeperProcess
from penstock.broker.packets import PacketSocket
from penstock.storage.layout import SegmentName


@pytest.fixture
def process():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    bells = os.eventfd(0), os.eventfd(0)
    link = PacketSocket(theirs.detach())
    yield KeeperProcess(link, *bells, KeeperOptions())
    link.close()
    ours.close()
    for bell in bells:
        os.close(bell)


@pytest.mark.parametrize(("took_s", "level"), [(0.5, "DEBUG"), (SLOW_S, "WARNING")])
def test_a_round_is_told_once_with_the_requests_that_it_was_for(process, caplog, took_s, level):
    caplog.set_level(logging.DEBUG, "penstock")
    process._tell_named(took_s)
    process._name(Named(["order-17"]))
    process._name(Named(["order-18"]))
    process._tell_named(took_s)
    process._tell_named(took_s)
    said = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert said == [(level, f"synced in {took_s:.3g} s, for request order-17, order-18")]


def test_the_requests_of_a_round_are_bounded(process, caplog):
    caplog.set_level(logging.DEBUG, "penstock")
    for number in range(NAMED_MOST + 5):
        process._name(Named([f"id-{number}."]))
    process._tell_named(0.0)
    assert "id-4." not in caplog.text
    assert "id-5." in caplog.text
    assert caplog.text.count("id-") == NAMED_MOST


def test_of_segments_that_are_removed_one_goes_between_two_rounds(process, tmp_path):
    names = [SegmentName(seq, 1).segment_file for seq in (1, 5, 9)]
    inside = tmp_path / "topic" / "0"
    for job in (Unlink(1, str(inside), names), RemoveTree(str(inside.parent))):
        inside.mkdir(parents=True, exist_ok=True)
        for name in names:
            (inside / name).write_bytes(b"x")
        left = []
        while not process._do(job):
            left.append(len(list(inside.iterdir())))
        assert left == [2, 1, 0]
    assert not inside.parent.exists()


def test_a_job_that_fails_in_the_middle_is_over_and_the_next_one_begins(process, tmp_path, caplog):
    names = [SegmentName(seq, 1).segment_file for seq in (1, 5, 9)]
    (tmp_path / names[0]).write_bytes(b"x")
    (tmp_path / names[1]).mkdir()
    (tmp_path / names[2]).write_bytes(b"x")
    assert not process._do(Unlink(1, str(tmp_path), names))
    assert process._do(Unlink(1, str(tmp_path), names))
    assert "Unlink failed" in caplog.text
    assert not process._do(Unlink(2, str(tmp_path), names[2:]))
    assert process._do(Unlink(2, str(tmp_path), names[2:]))
    assert [each.name for each in tmp_path.iterdir()] == [names[1]]
