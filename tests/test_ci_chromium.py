"""`.ci/chromium` is silent where there is a Chromium, installs one where it may, and else says what is skipped."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.sources import ROOT


def program(place: Path, text: str = "exit 0") -> Path:
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)
    return place


@pytest.fixture
def machine(tmp_path) -> Path:
    """A folder of programs with little in it: no Chromium, no apt, and a user who is not root."""
    for name in ("env", "sh"):
        found = shutil.which(name)
        assert found
        (tmp_path / name).symlink_to(found)
    program(tmp_path / "id", "echo 1000")
    return tmp_path


def run(machine: Path, **environment: str) -> str:
    """What it says. It never fails, because the tests of the console skip without it."""
    shell = os.path.realpath(machine / "sh")
    done = subprocess.run(
        [shell, str(ROOT / ".ci/chromium")], env={"PATH": str(machine), **environment}, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


@pytest.mark.parametrize("name", ["chromium", "chromium-browser"])
def test_one_that_is_there_is_enough(machine, name):
    program(machine / name)
    assert run(machine) == ""


def test_one_that_is_named_is_enough(machine, tmp_path):
    assert run(machine, CHROMIUM=str(program(tmp_path / "browser"))) == ""


def test_without_apt_it_says_what_is_skipped(machine):
    assert "there is no apt here to install one" in run(machine, CHROMIUM="/none")


def test_only_root_installs(machine):
    program(machine / "apt-get")
    program(machine / "sudo", "exit 1")
    assert "only root may install one" in run(machine)


@pytest.mark.parametrize("user", ["0", "1000"])
def test_apt_installs_one(machine, user):
    program(machine / "id", f"echo {user}")
    program(machine / "sudo", '[ "$2" = true ] || { shift; exec "$@"; }')
    program(machine / "apt-cache")
    chmod = shutil.which("chmod")
    program(
        machine / "apt-get",
        f': > "{machine}/chromium"; {chmod} 755 "{machine}/chromium"; echo "$*" > "{machine}/asked"',
    )
    assert "this happens once" in run(machine)
    assert "install" in (machine / "asked").read_text()
    assert run(machine) == ""


@pytest.mark.parametrize(("apt", "said"), [("exit 100", "apt could not install it"), ("exit 0", "apt brought none")])
def test_a_failing_apt_is_said(machine, apt, said):
    program(machine / "id", "echo 0")
    program(machine / "apt-cache")
    program(machine / "apt-get", apt)
    assert said in run(machine)
