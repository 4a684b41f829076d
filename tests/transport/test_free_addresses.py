"""Trying addresses before anything is made that listens there."""

from __future__ import annotations

import os
import socket

import pytest
from penstock.transport.errors import AddressInUse, CannotListen
from penstock.transport.free_addresses import need_free
from penstock.transport.url import Url, parse

SCHEMES = ("unix", "tcp", "tls")


def urls(*addresses: str) -> list[Url]:
    return [parse(address, schemes=SCHEMES) for address in addresses]


@pytest.fixture
def taken():
    """A port that is listened on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free(taken):
    """A port that is free, most likely."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:{}", "tls://localhost:{}", "tcp://0.0.0.0:{}"])
def test_a_port_in_use_is_refused_with_the_way_out(taken, address):
    address = address.format(taken)
    with pytest.raises(AddressInUse, match=f"{address}; stop it or choose another address"):
        need_free(urls("tcp://127.0.0.1:0", address))


def test_one_port_for_two_doors_is_refused(free):
    with pytest.raises(AddressInUse):
        need_free(urls(f"tcp://127.0.0.1:{free}", f"tls://127.0.0.1:{free}"))


def test_ports_that_were_tried_are_free_again(free):
    for _ in range(2):
        need_free(urls(f"tcp://127.0.0.1:{free}", "tcp://127.0.0.1:0", "tcp://*:0"))
    socket.create_server(("127.0.0.1", free)).close()


def test_a_path_in_use_is_refused_and_one_that_was_left_stays(tmp_path):
    path = f"{tmp_path}/door"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        with pytest.raises(AddressInUse, match=f"{path}; stop it or choose another path"):
            need_free(urls(f"unix://{path}"))
    need_free(urls(f"unix://{path}", f"unix://{tmp_path}/missing/door"))
    assert os.listdir(tmp_path) == ["door"]


def test_another_file_at_the_path_is_refused(tmp_path):
    with open(f"{tmp_path}/file", "w"), pytest.raises(CannotListen, match="not a socket"):
        need_free(urls(f"unix://{tmp_path}/file"))


def test_a_host_that_is_unknown_is_refused():
    with pytest.raises(CannotListen, match=r"tcp://nowhere.invalid:0"):
        need_free(urls("tcp://nowhere.invalid:0"))
