"""Ctrl-C at any moment of `connect` over ZeroMQ: no context is left that never ends."""

from __future__ import annotations

import faulthandler
from pathlib import Path

import pytest
import zmq
from penstock.clients.channels.zmq import ZmqChannel
from support.interrupts import InterruptAt

PATIENCE_S = 60.0
STRIDE = 5
INSIDE = ("clients/channels", "transport", Path(zmq.__file__).parent.as_posix())


def test_a_channel_whose_making_is_interrupted_ends(request: pytest.FixtureRequest) -> None:
    nth, came = 1, True
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)  # ending a context cannot be interrupted
    while came:
        channel = None
        with InterruptAt(nth, inside=INSIDE) as interrupt:
            try:
                channel = ZmqChannel("tcp://127.0.0.1:1", max_bytes=1 << 20)
            except KeyboardInterrupt:
                assert interrupt.came
        if channel is not None:
            channel.close()
        came, nth = interrupt.came, nth + (1 if request.config.getoption("--soak") else STRIDE)
    faulthandler.cancel_dump_traceback_later()
    assert nth > 20
