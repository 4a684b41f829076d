"""Addresses are understood or refused with a reason."""

from __future__ import annotations

import pytest
from penstock.transport import InvalidUrl, Url
from penstock.transport.url import (
    advertise_url,
    any_host,
    connect_url,
    has_translated_ports,
    listen_url,
    local_address,
    parse,
    reachable,
)

GOOD = {
    "tcp://127.0.0.1:7070": Url("tcp", host="127.0.0.1", port=7070),
    "tcp://broker.example.org:1": Url("tcp", host="broker.example.org", port=1),
    "tcp://[::1]:65535": Url("tcp", host="[::1]", port=65535),
    "tcp://*:0": Url("tcp", host="*", port=0),
    "unix:///run/penstock/broker.sock": Url("unix", path="/run/penstock/broker.sock"),
    "ipc:///run/penstock/broker.sock": Url("ipc", path="/run/penstock/broker.sock"),
    "file:///var/lib/penstock": Url("file", path="/var/lib/penstock"),
    "mem://": Url("mem"),
    "mem://test-1": Url("mem", name="test-1"),
}


@pytest.mark.parametrize(("text", "url"), GOOD.items())
def test_an_address_is_understood_and_written_back(text, url):
    assert parse(text) == url
    assert str(url) == text


BAD = {
    "": "does not start with one of unix://, ipc://, tcp://, file://, mem://",
    "http://x:1": "does not start with one of",
    "tcp:/127.0.0.1:1": "does not start with one of",
    "tcp://localhost": "is not tcp://HOST:PORT",
    "tcp://::1:7070": "an IPv6 host stands in brackets",
    "tcp://a b:1": "is not tcp://HOST:PORT",
    "tcp://h:65536": "ports are 0 to 65535",
    "tcp://h:-1": "ports are 0 to 65535",
    "tcp://h:٣": "ports are 0 to 65535",
    "tcp://h:1/path": "ports are 0 to 65535",
    "ipc://relative/path": "needs an absolute path",
    "unix://relative/path": "needs an absolute path",
    "ipc://@abstract": "needs an absolute path",
    "ipc://*": "needs an absolute path",
    "ipc:///" + "x" * 107: "over 107 bytes",
    "unix:///" + "x" * 107: "over 107 bytes",
    "ipc:///a\0b": "characters that no path should have",
    "file://": "needs an absolute path",
    "file:///": "names the root directory",
    "mem://a/b": "other characters than",
    "tcp://ann:pl4nted@h:1": "'tcp://...@h:1' names a user, which no address does",
    "tcp://h:pl4nted@": "'tcp://...@' names a user",
    "redis://:pl4nted@h:6379/0": "'redis://...@h:6379/0' does not start with one of",
    "ann:pl4nted@h:1": "'...@h:1' does not start with one of",
    "mem://ann:pl4nted@h": "'mem://...@h' has a name with other",
    "unix://ann:pl4nted@/s": "'unix://...@/s' needs an absolute path",
    "file:///a@b\n": "'file:///a@b\\n' has characters",
}


@pytest.mark.parametrize(("text", "reason"), BAD.items())
def test_a_wrong_address_is_refused_with_the_reason(text, reason):
    with pytest.raises(InvalidUrl) as caught:
        parse(text)
    assert reason in caught.value.message


def test_only_sockets_can_be_listened_on_and_connected_to():
    assert listen_url("tcp://127.0.0.1:0").port == 0
    assert connect_url("unix:///a").path == "/a"
    for text in ("mem://x", "file:///x"):
        with pytest.raises(InvalidUrl, match="unix://, ipc://, tcp://"):
            listen_url(text)
    with pytest.raises(InvalidUrl, match="every interface"):
        connect_url("tcp://0.0.0.0:7070")
    with pytest.raises(InvalidUrl, match="port 0"):
        connect_url("tcp://127.0.0.1:0")


def test_local_addresses_are_told_from_wider_ones():
    assert all(
        parse(text).is_local
        for text in ("unix:///a", "ipc:///a", "tcp://127.1.2.3:1", "tcp://localhost:1", "tcp://[::1]:1")
    )
    assert not any(parse(text).is_local for text in ("tcp://0.0.0.0:1", "tcp://*:1", "tcp://10.0.0.1:1"))


def test_a_wildcard_endpoint_is_reached_by_the_host_already_connected_to():
    assert reachable("tcp://0.0.0.0:5555", "tcp://broker:7070") == "tcp://broker:5555"
    assert reachable("tcp://10.0.0.1:5555", "tcp://broker:7070") == "tcp://10.0.0.1:5555"
    assert reachable("ipc:///a.b", "ipc:///a") == "ipc:///a.b"
    assert reachable(any_host("tcp://10.0.0.1:5555"), "tcp://broker:7070") == "tcp://broker:5555"
    assert any_host("ipc:///a.b") == "ipc:///a.b"


def test_a_listener_has_translated_ports_where_none_that_is_advertised_is_its_own():
    advertised = ["unix:///a", "tcp://a:1", "tcp://b:7070"]
    assert not has_translated_ports("tcp://0.0.0.0:7070", advertised)
    assert has_translated_ports("tcp://0.0.0.0:7071", advertised)
    assert not has_translated_ports("tcp://0.0.0.0:7071", ["unix:///a"])
    assert not has_translated_ports("tcp://0.0.0.0:7071", [])
    assert not has_translated_ports("ipc:///a", advertised)


def test_what_is_advertised_can_be_connected_to():
    for text in ("unix:///a", "ipc:///a", "tcp://broker.example:7070", "tcp://[::1]:7070"):
        assert str(advertise_url(text)) == text
    for text, says in (
        ("tcp://*:7070", "every interface"), ("tcp://a:0", "port 0"), ("tls://a:1", "start with one of"),
    ):  # fmt: skip
        with pytest.raises(InvalidUrl, match=says):
            advertise_url(text)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("tcp://127.0.0.1:1", "tcp://127.0.0.1:1", True),
        ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2", False),
        ("tcp://127.0.0.1:1", "tcp://127.0.0.2:1", False),
        ("tcp://127.0.0.1:1", "tcp://[::1]:1", False),
        ("tcp://*:1", "tcp://10.0.0.1:1", True),
        ("tcp://*:1", "tcp://[::1]:1", True),
        ("tcp://*:1", "tcp://10.0.0.1:2", False),
        ("tcp://*:1", "tcp://0.0.0.0:1", True),
        ("tcp://0.0.0.0:1", "tcp://10.0.0.1:1", True),
        ("tcp://0.0.0.0:1", "tcp://localhost:1", True),
        ("tcp://0.0.0.0:1", "tcp://[::1]:1", False),
        ("tcp://[::]:1", "tcp://[::1]:1", True),
        ("tcp://[::]:1", "tcp://localhost:1", True),
        ("tcp://[::]:1", "tcp://10.0.0.1:1", False),
        ("tcp://*:0", "tcp://127.0.0.1:0", False),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", False),
        ("unix:///a", "unix:///a", True),
        ("tcp://localhost:1", "tcp://127.0.0.1:1", True),
        ("tcp://localhost:1", "tcp://[::1]:1", True),
        ("tcp://localhost:1", "tcp://127.0.0.2:1", False),
        ("tcp://localhost:1", "tcp://localhost:2", False),
        ("tcp://[::1]:1", "tcp://0.0.0.0:1", False),
        ("unix:///a", "unix:///b", False),
        ("unix:///a", "ipc:///a", True),
        ("unix:///a", "tcp://*:1", False),
    ],
)
def test_two_addresses_overlap_where_one_process_cannot_listen_at_both(one: str, other: str, overlap: bool) -> None:
    first, second = listen_url(one), listen_url(other)
    assert (first.overlaps(second), second.overlaps(first)) == (overlap, overlap)


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        (["tcp://10.0.0.1:7", "unix:///a", "unix:///b"], "unix:///a"),
        (["tcp://10.0.0.1:7", "ipc:///a"], "tcp://10.0.0.1:7"),
        (["tcp://0.0.0.0:7"], "tcp://127.0.0.1:7"),
        (["tcp://*:7"], "tcp://127.0.0.1:7"),
        (["tcp://[::]:7"], "tcp://[::1]:7"),
        (["tcp://[::1]:7"], "tcp://[::1]:7"),
    ],
)
def test_a_process_of_this_machine_connects_to_a_unix_socket_or_to_one_host(listen: list[str], address: str) -> None:
    assert local_address(listen) == address
    assert connect_url(address)
