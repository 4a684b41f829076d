"""The TypeScript client (clients/typescript): its own tests run here, against a gateway, and so does its README.

They run on a copy, so that npm leaves nothing in the tree. Without Node.js or the registry they are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.npm import COMPILER, run_tests, succeed
from support.sources import ROOT

from .conftest import NEEDS

SOURCES = ROOT / "clients" / "typescript"
README = (SOURCES / "README.md").read_text()


def test_its_tests_pass(package, gateway, guarded, secure, certificate):
    files = [str(path.relative_to(package)) for path in sorted((package / "dist" / "test").glob("*.test.js"))]
    address = f"tcp://127.0.0.1:{gateway.port}"
    tls = {"PENSTOCK_TEST_TLS": f"tls://localhost:{secure.port}", "PENSTOCK_TEST_CA": certificate[0]}
    users = f"tcp://ann:s3cret%20word@127.0.0.1:{guarded.port}"
    done = run_tests(files, package, PENSTOCK_TEST_RESP=address, PENSTOCK_TEST_USERS=users, **tls)
    assert "PENSTOCK_TEST" not in done.stdout, "a test was skipped although there is a gateway"


@pytest.fixture(scope="module")
def shop(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh project, in which a user has typed what the README says under Install."""
    home = tmp_path_factory.mktemp("home")
    clone, shop = home / "penstock", home / "shop"
    shutil.copytree(SOURCES, clone / "clients" / "typescript", ignore=shutil.ignore_patterns("node_modules", "dist"))
    shop.mkdir()
    (shop / "package.json").write_text('{"name": "shop", "private": true}')
    cache = succeed("npm", "config", "get", "cache", cwd=package).strip()
    settings = {"HOME": str(home), "npm_config_cache": cache, "npm_config_prefer_offline": "true"}
    succeed("bash", "-euc", block("sh", 0), cwd=clone, **settings)
    return shop


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a gateway that was started as the README says, but for its port."""
    pytest.importorskip("hiredis", reason=NEEDS)
    command = f"exec {block('sh', 1).strip().replace(':6380', ':0')} --json"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    folder = tmp_path_factory.mktemp("served")
    with subprocess.Popen(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["resp"][0]
        finally:
            process.terminate()


def block(language: str, number: int) -> str:
    """A code block of the README."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)[number]


def compiled(package: Path, shop: Path, name: str, code: str) -> None:
    """Compile a program of TypeScript as strictly as can be, the types of the package too."""
    (shop / name).write_text(code)
    checks = ("--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes", "--skipLibCheck", "false")
    options = ("--module", "nodenext", "--target", "es2022", "--types", "node", *checks)
    succeed(str(package / COMPILER), *options, name, cwd=shop)


def test_what_users_install_is_the_compiled_sources(shop):
    installed = shop / "node_modules" / "@penstock" / "client"
    files = {str(path.relative_to(installed)) for path in installed.rglob("*") if path.is_file()}
    modules = {path.stem for path in SOURCES.glob("src/*.ts")}
    dist = {f"dist/src/{name}{ending}" for name in modules for ending in (".js", ".d.ts")}
    assert files == {"LICENSE", "README.md", "package.json", *dist}


def test_every_block_of_the_readme_runs(package, shop, served):
    assert len(re.findall(r"^```", README, re.MULTILINE)) == 2 * 4, "a block that no test runs"
    compiled(package, shop, "example.mts", block("ts", 0))
    printed = succeed("node", "example.mjs", cwd=shop, PENSTOCK=served)
    said = re.search(r"^It prints (.*)\.$", README, re.MULTILINE)
    assert said is not None
    assert printed.splitlines() == re.findall(r"`(.*?)`", said[1])
    require(shop, "example.cjs", block("js", 0), served)


def test_typescript_compiles_it_for_commonjs(package, shop, served):
    code = 'import { connect, type Entry } from "@penstock/client";\n' + block("js", 0).partition("\n")[2]
    compiled(package, shop, "common.cts", code.replace(".PENSTOCK", '["PENSTOCK"]'))
    require(shop, "common.cjs", (shop / "common.cjs").read_text(), served)


def require(shop: Path, name: str, code: str, served: str) -> None:
    """Run a program that requires the package, where Node.js can."""
    assert 'require("@penstock/client")' in code
    (shop / name).write_text(code)
    if succeed("node", "-p", "process.features.require_module === true", cwd=shop).strip() == "true":
        assert succeed("node", name, cwd=shop, PENSTOCK=served) == "PONG\n"


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
