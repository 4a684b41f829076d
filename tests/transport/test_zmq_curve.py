"""The socket that decides about connections: a gate that fails refuses, and a broker that cannot ask does not serve."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from penstock.transport.errors import CannotListen
from penstock.transport.zmq_curve import GateSocket, Guarded, Knock
from penstock.transport.zmq_sockets import Context


class Door:
    """Lets those in from one host, and fails for another."""

    def __init__(self) -> None:
        self.knocks: list[Knock] = []

    def admit(self, knock: Knock) -> str:
        self.knocks.append(knock)
        if knock.address == "broken":
            raise RuntimeError("the file is gone")
        return "key:00" if knock.address == "known" else ""


DOOR = Door()


@pytest.fixture
def gate() -> Iterator[GateSocket]:
    DOOR.knocks.clear()
    with Context(guarded=Guarded(None, DOOR)) as context:
        assert context.gate is not None
        yield context.gate


def asked(gate: GateSocket, *frames: bytes) -> tuple[bytes, bytes]:
    """Status and name of an answer."""
    version, request, status, _, name, _ = gate._answer([*frames])
    assert (version, request) == (frames[0], frames[1])
    return status, name


def test_the_gate_names_a_peer_or_it_is_refused(gate: GateSocket):
    rest = b"", b"CURVE", b"\x01" * 32
    assert asked(gate, b"1.0", b"7", b"clients", b"known", *rest) == (b"200", b"key:00")
    assert asked(gate, b"1.0", b"8", b"clients", b"unknown", *rest) == (b"400", b"")
    assert asked(gate, b"1.0", b"9", b"clients", b"known") == (b"200", b"key:00")
    assert DOOR.knocks == [
        Knock("clients", "known", "CURVE", b"\x01" * 32),
        Knock("clients", "unknown", "CURVE", b"\x01" * 32),
        Knock("clients", "known", "", b""),
    ]


def test_a_gate_that_fails_or_is_not_understood_refuses(gate: GateSocket, caplog: pytest.LogCaptureFixture):
    assert asked(gate, b"1.0", b"1", b"clients", b"broken", b"", b"NULL") == (b"400", b"")
    assert "deciding about it failed" in caplog.text
    assert asked(gate, b"2.0", b"1", b"clients", b"known", b"", b"NULL") == (b"400", b"")


def test_it_answers_itself_without_the_gate(gate: GateSocket):
    gate.check()
    assert DOOR.knocks == []


def test_where_nothing_answers_no_broker_serves(gate: GateSocket, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(GateSocket, "answer", lambda self: None)
    with pytest.raises(CannotListen, match="does not answer"):
        gate.check()
