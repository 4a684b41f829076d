"""Tests that other packages ship in their source distributions, which .ci/sdists fetches, once for each environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

HERE = Path(sys.prefix, "sdists")
TESTS = Path(__file__).resolve().parent.parent


def unpacked(package: str, place: Path) -> Path:
    """The sources of a package, in a directory of their own. Skips where they could not be fetched."""
    found = sorted(HERE.glob(f"{package}-*.tar.gz"))
    if not found:
        pytest.skip(f"the source of {package} is not in {HERE}: .ci/sdists fetches it, once for each environment")
    with tarfile.open(found[-1]) as archive:
        archive.extractall(place, filter="data")
    return next(place.iterdir())


def run(folder: Path, arguments: Sequence[str], *, environment: Mapping[str, str], timeout_s: float) -> dict[str, str]:
    """Run some of the tests in a folder, which is on the path, too; what became of each that did not skip."""
    report = folder.parent / "report.xml"
    command = [*(sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"), *arguments]
    done = subprocess.run(
        [*command, f"--junitxml={report}"], cwd=folder, capture_output=True, text=True, timeout=timeout_s,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
    )  # fmt: skip
    assert report.exists(), done.stdout + done.stderr
    return outcomes(report)


def outcomes(report: Path) -> dict[str, str]:
    """What became of each test that did not skip, by its class and name: "" if it passed, else how it failed."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [part.get("message", "") for kind in ("failure", "error") for part in case.iter(kind)]
        if bad or case.find("skipped") is None:
            found[f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"] = bad[0] if bad else ""
    return found


def unexcused(found: Mapping[str, str], excuses: Mapping[str, str]) -> dict[str, str]:
    """Those that fail without an excuse, and those that pass in spite of one."""
    failing = {name: why for name, why in found.items() if why and name not in excuses}
    return failing | {name: "passes by now" for name in excuses if not found.get(name)}
