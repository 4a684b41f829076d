"""Packet sockets and the link: in order, never waiting, and the end of the peer is noticed."""

from __future__ import annotations

import fcntl
import os
import resource

import pytest
from penstock.broker.config import KeeperOptions
from penstock.broker.keeper import messages
from penstock.broker.keeper.link import KeeperLink
from penstock.broker.keeper.process import KeeperProcess
from penstock.broker.packets import PacketSocket, PeerGone


@pytest.fixture
def ends():
    ours, theirs = map(PacketSocket, PacketSocket.pair())
    yield ours, theirs
    ours.close()
    theirs.close()


def test_packets_arrive_whole_and_in_order(ends: tuple[PacketSocket, PacketSocket]):
    ours, theirs = ends
    ours.send([b"one", b"two" * 1000])
    assert theirs.receive() == (b"one", [])
    assert theirs.receive() == (b"two" * 1000, [])
    assert theirs.receive() is None


def test_a_peer_that_does_not_read_never_holds_the_sender_up(ends: tuple[PacketSocket, PacketSocket]):
    ours, theirs = ends
    sent = [b"%06d" % number + bytes(2000) for number in range(2000)]
    ours.send(sent)
    assert ours.unsent > 0
    found = []
    while len(found) < len(sent):
        received = theirs.receive()
        if received is None:
            ours.flush()
        else:
            found.append(received[0])
    assert found == sent
    assert ours.unsent == 0


def test_the_end_of_the_peer_is_noticed_after_its_last_packet(ends: tuple[PacketSocket, PacketSocket]):
    ours, theirs = ends
    ours.send([b"last"])
    ours.close()
    assert theirs.receive() == (b"last", [])
    with pytest.raises(PeerGone):
        theirs.receive()
    theirs.send([b"into the void"])
    assert theirs.gone
    assert theirs.unsent == 0


def test_open_files_travel_with_a_packet(ends: tuple[PacketSocket, PacketSocket]):
    ours, theirs = ends
    reading, writing = os.pipe()
    ours.send_descriptors(b"here", [writing])
    received = theirs.receive()
    assert received is not None
    os.write(received[1][0], b"through the copy")
    assert os.read(reading, 99) == b"through the copy"
    for descriptor in (reading, writing, *received[1]):
        os.close(descriptor)


def test_every_message_survives_the_wire():
    commands = [
        messages.Attach("/board", "/data"), messages.Register(1, b"i" * 16, "/d", 7, 2), messages.Forget(3),
        messages.PrepareSpare(1, "/d", 64), messages.Unlink(4, "/d", ["a", "b"]), messages.RemoveTree("/t"),
        messages.FinishSnapshot(5, "/d", 9, b"i" * 16), messages.Stop(),
    ]  # fmt: skip
    reports = [
        messages.Started(1), messages.Forgotten(2), messages.Spared(3, "/s"), messages.Unlinked(4),
        messages.SnapshotSaved(5, 6), messages.Refused(7, 8, "why"),
    ]  # fmt: skip
    assert [each for packet in messages.packets(commands) for each in messages.decode_commands(packet)] == commands
    assert [each for packet in messages.packets(reports) for each in messages.decode_reports(packet)] == reports


def test_a_thousand_registrations_take_a_few_packets():
    many = [messages.Register(row, bytes(16), f"/data/topics/{'0' * 32}/{row}", 1, 1) for row in range(1000)]
    packets = messages.packets(many)
    assert len(packets) < 5
    assert max(map(len, packets)) < 2 * messages.PACKET_BYTES
    assert messages.packets([]) == []


def test_a_link_rings_reports_and_notices_its_keepers_end():
    ours, theirs = PacketSocket.pair()
    doorbell, bell_back = os.eventfd(0, os.EFD_NONBLOCK), os.eventfd(0, os.EFD_NONBLOCK)
    keeper_bell = os.dup(doorbell)
    link, keeper = KeeperLink(ours, doorbell, bell_back), PacketSocket(theirs)
    link.ring()
    link.ring()
    assert os.eventfd_read(keeper_bell) == 2
    keeper.send(messages.packets([messages.Started(77), messages.Forgotten(1)]))
    assert link.receive() == [messages.Started(77), messages.Forgotten(1)]
    assert (link.started, link.pid, link.gone) == (True, 77, False)
    keeper.send(messages.packets([messages.Forgotten(2)]))
    keeper.close()
    assert link.receive() == [messages.Forgotten(2)]
    assert link.gone
    link.send([messages.Stop()])
    assert link.stop(5.0) == []
    link.close()
    os.close(keeper_bell)


def test_a_keeper_is_stopped_over_any_descriptor_as_one_that_came_while_the_broker_had_many_files_open():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        ours, theirs = PacketSocket.pair()
        high = fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 1024)  # select() takes those below
        os.close(ours)
        link, keeper = KeeperLink(high, os.eventfd(0), os.eventfd(0)), PacketSocket(theirs)
        keeper.send(messages.packets([messages.Forgotten(2)]))
        keeper.close()
        assert link.stop(5.0) == [messages.Forgotten(2)]
        assert link.gone
        link.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_spare_that_could_not_be_made_is_not_told_as_a_partition_that_cannot_be_synced(
    ends: tuple[PacketSocket, PacketSocket],
):
    ours, theirs = ends
    keeper = KeeperProcess(theirs, -1, -1, KeeperOptions())
    keeper._do(messages.PrepareSpare(3, "/nowhere/to/be/found", 4096))
    received = ours.receive()
    assert received is not None
    (report,) = messages.decode_reports(received[0])
    assert isinstance(report, messages.Refused)
    assert (report.row, report.job) == (-1, 0)
