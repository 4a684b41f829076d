"""A signal that comes a second after the first one acts."""

from __future__ import annotations

import signal

import pytest
from penstock.broker import stop
from penstock.cli.noted_signals import noted


def test_a_first_signal_is_noted_and_its_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with noted(signal.SIGINT, signal.SIGTERM) as told:
        assert not told
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
        assert told
        assert not told.again
    assert signal.getsignal(signal.SIGINT) is before


def test_a_later_signal_has_its_usual_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stop, "SAME_STOP_S", 0.0)
    with noted(signal.SIGINT) as told:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert told.again
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
