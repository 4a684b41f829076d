"""What the keeper says of rounds that named requests waited for."""

from __future__ import annotations

import logging
import os
import socket

import pytest
from penstock.broker.config import KeeperOptions
from penstock.broker.keeper.messages import NAMED_MOST, Named
from penstock.broker.keeper.process import SLOW_S, KeeperProcess
from penstock.broker.packets import PacketSocket


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
