"""The wheel and the sdist run without the tree they were built from, and the lock has what pyproject.toml asks for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from support.sources import ROOT, shipped

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED_EXTRAS = ("codecs", "gateway")
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "node_modules", "__pycache__", "results")


def build(kind: str, tree: Path, target: Path) -> Path:
    """Build `tree` as pip does, but with the setuptools of this environment."""
    code = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    target.mkdir(exist_ok=True)
    subprocess.run([sys.executable, "-c", code, str(target)], cwd=tree, check=True, capture_output=True, timeout=100)
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("package")
    shutil.copytree(ROOT, place / "tree", ignore=LEFT_OUT)
    return build("sdist", place / "tree", place / "sdist")


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """Built from the sdist alone, so that it has all that is needed."""
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent.parent / "unpacked", filter="data")
    (tree,) = (sdist.parent.parent / "unpacked").iterdir()
    return build("wheel", tree, sdist.parent.parent / "wheel")


def test_the_wheel_runs_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    (packages,) = (tmp_path / "venv/lib").glob("python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # The libraries are those of this environment. Its own penstock is editable, by a .pth file that is not read here.
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    command = tmp_path / "venv/bin/penstock"
    command.write_text(f"#!{tmp_path}/venv/bin/python\nimport sys\nfrom penstock.cli import main\nsys.exit(main())\n")
    command.chmod(0o755)
    tried = subprocess.run(
        [str(tmp_path / "venv/bin/python"), "-I", str(ROOT / ".ci/tried.py")],
        cwd=tmp_path, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert (tried.returncode, str(packages) in tried.stdout) == (0, True), tried.stdout + tried.stderr


def test_the_wheel_has_every_module_and_the_sdist_the_documents(sdist: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {source.module.replace(".", "/") for source in shipped() if not source.module.endswith("flights")}
    assert not {each for each in modules if not {f"{each}.py", f"{each}/__init__.py"} & names}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert not {name for name in names if name.startswith(("tests/", "perf/"))}
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "docs/service.md",
        "deploy/Dockerfile",
        "examples/README.md",
    } <= inside
    linked = set(re.findall(r"\]\((?![a-z]+:)([^)#\s]+)", (ROOT / "README.md").read_text()))
    assert not linked - inside, "the description of the package leads there"
    floors = (ROOT / floor for floor in ("storage", "transport", "broker"))
    normative = {path.relative_to(ROOT) for floor in floors for path in floor.rglob("*.md")}
    assert not {str(each) for each in normative} - inside
    assert not {f"penstock/{each}" for each in normative} - names


def locked() -> dict[str, list[Version]]:
    """The versions that the lock has of each library: several where Python's version decides."""
    found: dict[str, list[Version]] = {}
    for name, version in re.findall(r"^([a-z0-9.-]+)==(\S+)", (ROOT / "deploy/requirements.lock").read_text(), re.M):
        found.setdefault(name, []).append(Version(version))
    return found


def test_the_lock_has_what_pyproject_asks_for_with_hashes() -> None:
    text, versions = (ROOT / "deploy/requirements.lock").read_text(), locked()
    wanted = [
        *PROJECT["dependencies"],
        *(each for extra in LOCKED_EXTRAS for each in PROJECT["optional-dependencies"][extra]),
    ]
    for requirement in map(Requirement, wanted):
        found = versions.get(requirement.name.replace("_", "-").lower(), [])
        assert found, f"{requirement.name} is not in the lock: make lock"
        assert all(requirement.specifier.contains(each) for each in found), (
            f"{requirement} is locked at {found}: make lock"
        )
    assert all("--hash=sha256:" in each for each in re.split(r"\n(?=[a-z])", text)[1:])


def test_the_typescript_package_has_the_licence() -> None:
    assert (ROOT / "clients/typescript/LICENSE").read_text() == (ROOT / "LICENSE").read_text()
