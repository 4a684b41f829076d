"""What a gateway may open, and what it says when a library is missing."""

from __future__ import annotations

import sys

import pytest
from penstock.broker import ServeConfig
from penstock.broker.errors import InsecureListen
from penstock.cli.app import run
from penstock.cli.serve import serve_config
from penstock.config import load
from penstock.gateway import libraries
from penstock.gateway.config import GatewayConfig
from penstock.gateway.errors import InvalidCertificate
from penstock.storage.errors import MissingLibrary
from penstock.transport.errors import InvalidUrl


def opened(*resp: str, **more: object) -> list[str]:
    return [str(url) for url in GatewayConfig(url="unix:///b", resp=resp, **more).addresses()["resp"]]


def test_addresses_of_this_machine_are_open_to_all():
    places = ["tcp://127.0.0.1:0", "tcp://localhost:6379", "tcp://[::1]:1", "unix:///tmp/r"]
    assert opened(*places) == places


@pytest.mark.parametrize("place", ["tcp://0.0.0.0:1", "tcp://*:0", "tcp://10.0.0.1:6379"])
def test_other_machines_need_users_or_consent(place):
    with pytest.raises(InsecureListen, match="--insecure"):
        opened("unix:///tmp/r", place)
    assert opened(place, insecure=True) == opened(place, users="/users") == [place]


def test_only_sockets_of_redis_clients_can_be_opened():
    for place in ("ipc:///tmp/r", "file:///tmp", "localhost:6379"):
        with pytest.raises(InvalidUrl):
            opened(place)


def test_each_door_has_its_addresses_and_one_without_has_none():
    found = GatewayConfig(url="unix:///b", http=("tcp://127.0.0.1:0", "unix:///tmp/h")).addresses()
    assert {door: [str(url) for url in urls] for door, urls in found.items()} == {
        "http": ["tcp://127.0.0.1:0", "unix:///tmp/h"]
    }
    with pytest.raises(InsecureListen):
        GatewayConfig(url="unix:///b", http=("tcp://0.0.0.0:80",)).addresses()


def test_a_config_goes_to_a_child_as_text():
    config = GatewayConfig(url="unix:///b", resp=("tcp://127.0.0.1:0",), http=("unix:///h",), may_create=False)
    assert GatewayConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    ("options", "may"), [((), True), (("--no-create",), False), (("--set", "no_create=yes"), False)]
)
def test_serve_hands_its_gateway_whether_records_make_topics(options, may, tmp_path, monkeypatch):
    configs: list[ServeConfig] = []

    class Supervised:
        def __init__(self, config):
            configs.append(config)

        def run(self, on_event, on_reload):
            return 0

    monkeypatch.setattr("penstock.broker.Supervisor", Supervised)
    monkeypatch.setattr("penstock.broker.diagnostics.begin", lambda process, options: None)
    own = ["--data", f"{tmp_path}/data", "--listen", f"unix://{tmp_path}/s", "--http", f"unix://{tmp_path}/h"]
    assert run(["serve", *own, *options]) == 0
    assert GatewayConfig.from_json(configs[0].gateway).may_create is may


def test_a_missing_library_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "hiredis", None)
    with pytest.raises(MissingLibrary, match=r"needs hiredis.*'\.\[gateway\]' in a clone"):
        libraries.load("hiredis")


@pytest.mark.parametrize(("door", "library"), [("resp", "hiredis"), ("http", "starlette"), ("http", "uvloop")])
def test_serving_a_door_without_its_libraries_makes_nothing(door, library, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    given = {"data": str(tmp_path / "data"), door: [f"unix://{tmp_path}/door"]}
    with pytest.raises(MissingLibrary, match=f"needs {library}, which is not installed"):
        serve_config(load(given, environ={}).config)
    assert list(tmp_path.iterdir()) == []


def test_tls_needs_a_certificate_and_is_no_less_reachable():
    for door in ("resp", "http"):
        with pytest.raises(InvalidCertificate, match="tls_certificate"):
            GatewayConfig(url="unix:///b", **{door: ("tls://127.0.0.1:1",)}).addresses()
        with pytest.raises(InsecureListen):
            GatewayConfig(url="unix:///b", **{door: ("tls://0.0.0.0:1",)}, tls_certificate="/c").addresses()
    assert opened("tls://[::1]:0", tls_certificate="/c") == ["tls://[::1]:0"]
