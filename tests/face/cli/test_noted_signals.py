"""A signal that comes a second after the first one acts."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from penstock.broker import stop
from penstock.cli.noted_signals import noted


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    """SIGINT does what it does in a fresh interpreter; other libraries in this process have handlers of their own."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
