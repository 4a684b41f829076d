"""Programs of Node.js with packages of npm: copied, installed and run. Tests skip without Node.js or the registry."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

NODE = 20
UNREACHABLE = re.compile(r"ENOTFOUND|ECONN|ETIMEDOUT|EAI_AGAIN|ENETUNREACH|ENOTCACHED|npm error network")
COMPILER = "node_modules/.bin/tsc"
NPM = ("--no-audit", "--no-fund", "--no-update-notifier")


def run(*command: str, cwd: Path, given: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command, without colours; `given` is its standard input."""
    settings = {**os.environ, "NO_COLOR": "1", "CI": "1", **environment}
    return subprocess.run(command, cwd=cwd, env=settings, input=given, capture_output=True, text=True)


def succeed(*command: str, cwd: Path, given: str = "", **environment: str) -> str:
    """What a command prints. It has to end well."""
    done = run(*command, cwd=cwd, given=given, **environment)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def installed(sources: Path, copy: Path, what: str) -> Path:
    """A copy of a package with what its lock file names, so that npm leaves nothing in the tree. `what` needs it."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: {what} needs Node.js {NODE} or newer")
    version = succeed("node", "--version", cwd=sources)
    if int(version.lstrip("v").partition(".")[0]) < NODE:
        pytest.skip(f"Node.js is {version.strip()}: {what} needs {NODE} or newer")
    shutil.copytree(sources, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    done = run("npm", "ci", "--prefer-offline", "--fetch-retries=1", *NPM, cwd=copy)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"the npm registry, which has packages that {what} needs, cannot be reached")
    assert done.returncode == 0, done.stderr
    return copy


TIMEOUT_MS = 600_000
"""Node.js gives it to each test, and to each file with all of its tests."""


def run_tests(files: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run tests of Node.js's own runner. They have to pass."""
    done = run("node", "--test", f"--test-timeout={TIMEOUT_MS}", *files, cwd=cwd, **environment)
    failures = re.findall(r"^ *not ok .*?^ *\.\.\.$", done.stdout, re.DOTALL | re.MULTILINE)
    assert not failures, "\n".join(failures)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
