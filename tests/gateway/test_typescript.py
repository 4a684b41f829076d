"""The TypeScript client (clients/typescript): its own tests run here, against a gateway, and so does its README.

They run on a copy, so that npm leaves nothing in the tree. Without Node.js or the registry they are skipped.
"""

from __future__ import annotations

import re
import tarfile
from pathlib import Path

from support.npm import COMPILER, NPM, run_tests, succeed
from support.sources import ROOT

SOURCES = ROOT / "clients" / "typescript"


def test_its_tests_pass(package, gateway, guarded, secure, certificate):
    files = [str(path.relative_to(package)) for path in sorted((package / "dist" / "test").glob("*.test.js"))]
    address = f"tcp://127.0.0.1:{gateway.port}"
    tls = {"PENSTOCK_TEST_TLS": f"tls://localhost:{secure.port}", "PENSTOCK_TEST_CA": certificate[0]}
    users = f"tcp://ann:s3cret%20word@127.0.0.1:{guarded.port}"
    done = run_tests(files, package, PENSTOCK_TEST_RESP=address, PENSTOCK_TEST_USERS=users, **tls)
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
