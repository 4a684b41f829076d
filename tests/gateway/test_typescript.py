"""The TypeScript client (clients/typescript): its own tests run here, against a gateway, and so does its README.

They run on a copy, so that npm leaves nothing in the tree. Without Node.js or the registry they are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.gateway import users
from support.processes import Serving
from support.sources import ROOT

from .conftest import GatewayProcess

SOURCES = ROOT / "clients" / "typescript"
NODE = 20
UNREACHABLE = re.compile(r"ENOTFOUND|ECONN|ETIMEDOUT|EAI_AGAIN|ENETUNREACH|ENOTCACHED|npm error network")
NPM = ("--no-audit", "--no-fund", "--no-update-notifier")
COMPILER = "node_modules/.bin/tsc"


def run(*command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the package, without colours."""
    settings = {**os.environ, "NO_COLOR": "1", "CI": "1", **environment}
    return subprocess.run(command, cwd=cwd, env=settings, stdin=subprocess.DEVNULL, capture_output=True, text=True)


def succeed(*command: str, cwd: Path, **environment: str) -> str:
    """What a command prints. It has to end well."""
    done = run(*command, cwd=cwd, **environment)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with what it needs for development, compiled."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: the TypeScript client needs Node.js {NODE} or newer")
    version = succeed("node", "--version", cwd=SOURCES)
    if int(version.lstrip("v").partition(".")[0]) < NODE:
        pytest.skip(f"Node.js is {version.strip()}: the TypeScript client needs {NODE} or newer")
    copy = tmp_path_factory.mktemp("typescript") / "penstock"
    shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    installed = run("npm", "ci", "--prefer-offline", "--fetch-retries=1", *NPM, cwd=copy)
    if installed.returncode and UNREACHABLE.search(installed.stderr):
        pytest.skip("the npm registry, which has TypeScript and the types of Node.js, cannot be reached")
    assert installed.returncode == 0, installed.stderr
    succeed(COMPILER, cwd=copy)
    return copy


@pytest.fixture(scope="module")
def guarded(gateway: GatewayProcess, broker: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway with users, as one of them writes it."""
    path = str(tmp_path_factory.mktemp("users") / "users")
    users.add(path, "ann", "s3cret word")
    process = GatewayProcess(broker.url, options=("--users", path))
    try:
        yield f"tcp://ann:s3cret%20word@127.0.0.1:{process.port}"
    finally:
        assert process.stop() == 0


def test_its_tests_pass(package, gateway, guarded, secure, certificate):
    files = [str(path.relative_to(package)) for path in sorted((package / "dist" / "test").glob("*.test.js"))]
    address = f"tcp://127.0.0.1:{gateway.port}"
    command = ("node", "--test", "--test-timeout=60000", *files)
    tls = {"PENSTOCK_TEST_TLS": f"tls://localhost:{secure.port}", "PENSTOCK_TEST_CA": certificate[0]}
    done = run(*command, cwd=package, PENSTOCK_TEST_RESP=address, PENSTOCK_TEST_USERS=guarded, **tls)
    failures = re.findall(r"^ *not ok .*?^ *\.\.\.$", done.stdout, re.DOTALL | re.MULTILINE)
    assert not failures, "\n".join(failures)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PENSTOCK_TEST" not in done.stdout, "a test was skipped although there is a gateway"


def test_the_example_of_the_readme_runs_as_printed_with_the_package_that_users_install(package, gateway, tmp_path):
    name = succeed("npm", "pack", "--silent", *NPM, cwd=package).split()[-1]
    with tarfile.open(package / name) as archive:
        members = archive.getnames()
        archive.extractall(tmp_path / "node_modules", filter="data")
    (tmp_path / "node_modules" / "@penstock").mkdir()
    (tmp_path / "node_modules" / "package").rename(tmp_path / "node_modules" / "@penstock" / "client")
    assert {Path(member).parts[1] for member in members} == {"README.md", "dist", "package.json"}
    assert not [member for member in members if "test" in member]
    (tmp_path / "node_modules" / "@types").symlink_to(package / "node_modules" / "@types")
    readme = (SOURCES / "README.md").read_text()
    example = re.findall(r"^```ts\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    (tmp_path / "example.mts").write_text(example[0])
    options = ("--module", "nodenext", "--target", "es2022", "--strict", "--types", "node", "example.mts")
    succeed(str(package / COMPILER), *options, cwd=tmp_path)
    printed = succeed("node", "example.mjs", cwd=tmp_path, PENSTOCK=f"tcp://127.0.0.1:{gateway.port}")
    said = re.search(r"^It prints (.*)\.$", readme, re.MULTILINE)
    assert said is not None
    assert printed.splitlines() == re.findall(r"`(.*?)`", said[1])


def test_its_types_are_exact(package):
    for path in sorted((package / "dist" / "src").glob("*.d.ts")):
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.DOTALL)
        assert re.findall(r"\bany\b", code) == [], path.name


def test_it_has_no_dependencies_and_modules_of_a_readable_size():
    for path in sorted([*SOURCES.glob("src/*.ts"), *SOURCES.glob("test/*.ts")]):
        lines = path.read_text().splitlines()
        assert len(lines) <= 500, path.name
        assert [line for line in lines if len(line) > 120] == [], path.name
    assert '"dependencies"' not in (SOURCES / "package.json").read_text()
