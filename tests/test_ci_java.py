"""`.ci/java` is silent where there is a Java, installs one where it may, and else says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.sources import ROOT

TOOLS = ("cat", "env", "sed", "sh")
GOOD = 'openjdk version "17.0.15" 2025-04-15'


def program(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return place


def java(home: Path, says: str) -> Path:
    program(home / "bin" / "java", f"echo '{says}' >&2")
    return home


@pytest.fixture
def machine(tmp_path) -> Path:
    """A folder of programs with little in it: no Java, no apt, and a user who is not root."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    program(folder / "id", "echo 1000")
    return folder


def run(machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": str(machine), "JVMS": str(machine.parent / "jvms"), **environment}
    shell = os.path.realpath(machine / "sh")
    return subprocess.run([shell, str(ROOT / ".ci/java")], env=environment, capture_output=True, text=True, timeout=60)


def test_a_java_that_is_there_is_enough_wherever_it_is(machine, tmp_path):
    there = java(tmp_path / "jvms" / "17", GOOD)
    for done in (
        run(machine),
        run(machine, JVMS="", JAVA_HOME=str(there)),
        run(machine, JVMS="", PATH=f"{machine}:{there}/bin"),
    ):
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_older_one_and_no_apt_is_one_sentence(machine, tmp_path):
    done = run(machine, JAVA_HOME=str(java(tmp_path / "old", 'openjdk version "11.0.2"')))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "Java 17 or newer" in line
    assert line.endswith("there is no apt here to do so.")


def test_who_may_not_install_is_told(machine):
    program(machine / "apt-get", "exit 100")
    done = run(machine)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("only root may.")


def test_root_with_apt_gets_what_apt_knows(machine, tmp_path):
    program(machine / "id", "echo 0")
    program(machine / "apt-cache", 'test "$2" = openjdk-21-jre-headless')
    made = tmp_path / "jvms" / "21"
    told = f"""cat > {made}/bin/java << END
#!/bin/sh
echo 'openjdk version "21.0.1"'
END"""
    made.joinpath("bin").mkdir(parents=True)
    made.joinpath("bin/java").touch(mode=0o755)
    program(machine / "apt-get", told)
    done = run(machine)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "installing openjdk-21-jre-headless" in done.stderr
    assert run(machine).stderr == ""


def test_an_apt_that_knows_none_is_named(machine):
    program(machine / "id", "echo 0")
    program(machine / "apt-cache", "exit 1")
    program(machine / "apt-get", "exit 0")
    done = run(machine)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("apt knows no package of it.")
