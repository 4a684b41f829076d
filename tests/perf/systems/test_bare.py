"""The bare socket: what goes in comes out, framed, to the receiver or back to where it came from."""

from __future__ import annotations

import pytest

from perf.systems import bare

VALUES = [b"", b"one", b"x" * 70_000, bytes(range(256))]


@pytest.fixture
def address(tmp_path):
    with bare.SYSTEM.serve(tmp_path, "") as found:
        yield found


def test_values_go_from_a_sender_to_a_receiver(address):
    with bare.SYSTEM.receiver(address, "") as receive, bare.SYSTEM.sender(address, "") as send:
        send(VALUES)
        got: list[bytes] = []
        while len(got) < len(VALUES):
            got += receive()
    assert got == VALUES


def test_an_echo_gives_back_what_it_got(address):
    frames = bare.Frames()
    with bare.connected(address) as connection:
        connection.sendall(bare.framed(VALUES))
        got: list[bytes] = []
        while len(got) < len(VALUES):
            got += frames.of(connection.recv(bare.AT_ONCE_BYTES))
    assert got == VALUES


def test_a_receiver_that_leaves_does_not_stop_the_forwarder(address):
    with bare.SYSTEM.receiver(address, ""):
        pass
    test_values_go_from_a_sender_to_a_receiver(address)


def test_frames_are_cut_out_of_any_pieces():
    frames = bare.Frames()
    stream = bare.framed(VALUES)
    got = [value for at in range(0, len(stream), 1000) for value in frames.of(stream[at : at + 1000])]
    assert got == VALUES
    small, frames = bare.framed([b"ab", b"c"]), bare.Frames()
    assert [frames.of(bytes([byte])) for byte in small] == [[], [], [], [], [], [b"ab"], [], [], [], [], [b"c"]]


def test_the_end_of_the_stream_is_an_error():
    with pytest.raises(ConnectionError):
        bare.Frames().of(b"")


def test_it_claims_no_durability():
    assert bare.SYSTEM.durabilities == frozenset()
    with pytest.raises(NotImplementedError):
        bare.SYSTEM.produce("", "", [])
