"""A broker that others reach at other addresses than it listens on: through containers, forwarded ports, NAT."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from penstock.clients import connect
from penstock.clients.connection import delivery
from penstock.clients.consuming import session_life
from penstock.storage.lock import holder_of
from penstock.transport import messages as m
from penstock.transport.errors import InvalidUrl
from support.processes import Serving
from support.raw_client import RawClient

VALUES = [b"%d" % number for number in range(100)]


class Forwarder:
    """Accepts at one address and forwards the bytes of both directions to and from another, in a thread."""

    def __init__(self, host: str, port: int = 0) -> None:
        self._listening = socket.create_server((host, port))
        self.port: int = self._listening.getsockname()[1]
        self.target = ("127.0.0.1", 0)
        self._ending, self._end = socket.socketpair()
        self._sockets = ExitStack()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, self._sockets:
            selector.register(self._ending, selectors.EVENT_READ)
            selector.register(self._listening, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._ending:
                        return
                    if key.fileobj is self._listening:
                        self._accept(selector)
                    else:
                        self._forward(selector, key)

    def _accept(self, selector: selectors.BaseSelector) -> None:
        ends = self._listening.accept()[0], socket.create_connection(self.target)
        for one, other in (ends, ends[::-1]):
            self._sockets.enter_context(closing(one))
            selector.register(one, selectors.EVENT_READ, other)

    @staticmethod
    def _forward(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        one, other = key.fileobj, key.data
        assert isinstance(one, socket.socket)
        try:
            data = one.recv(1 << 16)
            other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for end in (one, other):
                if end in selector.get_map():
                    selector.unregister(end)
                end.close()

    def close(self) -> None:
        self._end.close()
        self._thread.join()
        self._ending.close()
        self._listening.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def serve_through(stack: ExitStack, tmp_path: Path, forwarder: Forwarder, host: str, port: int = 0) -> Serving:
    """A broker on this port of 127.0.0.1, advertised where the forwarder accepts."""
    url = f"tcp://{host}:{forwarder.port}"
    listen = (f"tcp://127.0.0.1:{port}", f"unix://{tmp_path}/s")
    config = ServeConfig(data=str(tmp_path / "data"), listen=listen, advertise=(url,), board_rows=32)
    serving = stack.enter_context(Serving(config))
    forwarder.target = ("127.0.0.1", int(serving.url.rpartition(":")[2]))
    return serving


@pytest.fixture
def translated(stack: ExitStack, tmp_path: Path) -> Serving:
    """A broker behind a port that is translated."""
    return serve_through(stack, tmp_path, stack.enter_context(closing(Forwarder("127.0.0.1"))), "localhost")


def consume_all(url: str, how: delivery.Delivery = "auto") -> tuple[list[bytes], str]:
    """What a consumer gets of VALUES, which it is sent first, and how it gets them in the end."""
    with connect(url, timeout=60) as client:
        client.create_topic("t")
        with client.producer("t") as producer, client.consumer("t", start="earliest", delivery=how) as consumer:
            producer.send_many(VALUES)
            found: list[bytes] = []
            while len(found) < len(VALUES):
                found += [record.value for record in consumer.fetch(len(VALUES), wait=60)]
            return found, consumer.delivery


def test_a_broker_says_where_it_listens_and_what_it_advertises(translated: Serving, tmp_path: Path) -> None:
    listen, advertise = translated.ready["listen"], translated.ready["advertise"]
    assert listen[0].startswith("tcp://127.0.0.1:")
    assert advertise[0].startswith("tcp://localhost:")
    assert listen[0].rpartition(":")[2] != advertise[0].rpartition(":")[2]
    with RawClient(translated.url) as client:
        welcome, _ = client.ask(lambda request: m.Hello(request, 1, 1, "test"))
        topics = client.try_topic("t")
    assert welcome.advertise == advertise
    assert topics.topics[0].partitions[0].endpoint == advertise[0]
    assert holder_of((tmp_path / "data" / "lock").read_bytes()).endpoint == advertise[0]


def test_without_a_word_it_advertises_where_it_listens(stack: ExitStack, tmp_path: Path) -> None:
    config = ServeConfig(data=str(tmp_path / "data"), listen=("tcp://127.0.0.1:0",), board_rows=32)
    serving = stack.enter_context(Serving(config))
    with RawClient(serving.url) as client:
        welcome, _ = client.ask(lambda request: m.Hello(request, 1, 1, "test"))
        topic = client.try_topic("t").topics[0]
        assert topic.partitions[0].endpoint == ""
        assert join(client, topic.topic).endpoint.startswith("tcp://127.0.0.1:")
    assert welcome.advertise == serving.ready["advertise"] == serving.ready["listen"]
    assert holder_of((tmp_path / "data" / "lock").read_bytes()).endpoint == serving.url


def join(client: RawClient, topic: bytes) -> m.Joined:
    """A session with push delivery."""
    return client.ask(lambda request: m.Join(request, topic, "", "me", "push", -1, [], 30_000, 1 << 20, 100))[0]


def test_clients_behind_a_translated_port_are_delivered_to_over_their_connection(translated: Serving) -> None:
    url = translated.ready["advertise"][0]
    with RawClient(url) as client:
        assert join(client, client.create_topic("joined")).endpoint == ""
    assert consume_all(url, "push") == (VALUES, "push")


def test_a_port_that_another_name_of_the_host_does_not_have_is_given_up(
    stack: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a container does it: the port is published under its own number, and ports beside it are not."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    forwarder = stack.enter_context(closing(Forwarder("127.0.0.2", port)))
    serving = serve_through(stack, tmp_path, forwarder, "127.0.0.2", port)
    url = serving.ready["advertise"][0]
    with RawClient(url) as client:
        assert join(client, client.create_topic("joined")).endpoint.startswith("tcp://*:")
    monkeypatch.setattr(delivery, "is_local", lambda welcome: False)
    monkeypatch.setattr(session_life, "SILENCE_S", 0.1)
    assert consume_all(url) == (VALUES, "control")


def test_a_host_of_another_name_is_pushed_to(stack: ExitStack, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"tcp://localhost:{port}"
    listen = (f"tcp://127.0.0.1:{port}",)
    config = ServeConfig(data=str(tmp_path / "data"), listen=listen, advertise=(url,), board_rows=32)
    stack.enter_context(Serving(config))
    assert consume_all(url, "push") == (VALUES, "push")


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("tcp://broker.example:0", "has port 0; advertise the port that clients connect to"),
        ("tcp://0.0.0.0:7070", "names every interface; advertise the host that clients connect to"),
        ("http://broker.example:7070", "does not start with one of"),
        ("unix://relative", "needs an absolute path"),
    ],
)
def test_an_address_that_clients_cannot_connect_to_is_refused(address: str, says: str) -> None:
    with pytest.raises(InvalidUrl, match=says):
        ServeConfig(data="/d", advertise=("unix:///fine", address)).addresses()
