"""Who the gate of a broker lets in: pure decisions about connections."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from penstock import Key
from penstock.broker import access_file
from penstock.broker.access import BrokerAccess
from penstock.broker.admission import Admission
from penstock.transport.zmq_curve import Gate, GateSocket, Knock
from penstock.transport.zmq_sockets import Context

LOCAL = f"localhost:{os.geteuid()}:0:1"


@pytest.fixture
def key() -> Key:
    return Key.generate()


@pytest.fixture
def admission(tmp_path: Path, key: Key) -> Admission:
    path = str(tmp_path / "access")
    access_file.add_key(path, "ann", key.public)
    return Admission(BrokerAccess(path))


def knock(credential: str = "", domain: str = "broker", address: str = "10.0.0.1", mechanism: str = "CURVE") -> Knock:
    return Knock(domain, address, mechanism, bytes.fromhex(credential))


def test_a_key_of_the_file_is_let_in_and_nothing_like_it(admission: Admission, key: Key):
    assert admission.admit(knock(key.public)) == f"key:{key.public}"
    others = [Key.generate().public, "", key.public[:-2], key.public + "00", "00" + key.public]
    assert [admission.admit(knock(other)) for other in others] == [""] * len(others)
    assert admission.admit(knock(key.public, mechanism="NULL")) == ""
    assert admission.admit(knock(key.public, mechanism="PLAIN")) == ""
    assert admission.refusals.count == len(others) + 2


def test_users_of_the_system_come_by_null_over_ipc_alone(admission: Admission):
    assert admission.admit(knock(address=LOCAL, mechanism="NULL")) == f"uid:{os.geteuid()}"
    for address in ("127.0.0.1", "", "localhost", "localhost:x:0:1", LOCAL + ":1", " " + LOCAL):
        assert admission.admit(knock(address=address, mechanism="NULL")) == ""
    assert admission.admit(knock(address=LOCAL)) == "", "CURVE without a key"


def test_deliveries_are_for_their_guest_while_they_last(admission: Admission, key: Key):
    mine, local = knock(key.public, "deliver:1"), knock("", "deliver:1", LOCAL, "NULL")
    assert admission.admit(mine) == "", "expected by nothing"
    admission.expect("deliver:1", f"key:{key.public}")
    assert admission.admit(mine) == f"key:{key.public}"
    assert admission.admit(local) == admission.admit(knock(key.public, "deliver:2")) == ""
    admission.forget("deliver:1")
    admission.forget("deliver:1")
    assert admission.admit(mine) == ""


def test_a_gate_that_fails_refuses_and_is_logged(caplog: pytest.LogCaptureFixture):
    class Broken:
        def admit(self, knock: Knock) -> str:
            raise KeyError("why")

    class Open:
        def admit(self, knock: Knock) -> str:
            return "ann"

    asked = [b"1.0", b"7", b"broker", b"10.0.0.1", b"", b"NULL"]

    def answer(gate: Gate, frames: list[bytes]) -> list[bytes]:
        with Context() as context:
            made = GateSocket(context, gate)
            made.check()
            return made._answer(frames)

    assert answer(Open(), asked) == [b"1.0", b"7", b"200", b"", b"ann", b""]
    assert answer(Open(), [b"2.0", *asked[1:]])[2:5] == [b"400", b"", b""]
    assert answer(Broken(), asked)[2:5] == [b"400", b"", b""]
    assert "KeyError" in caplog.text
