"""The tests of streams that the client redis-py ships, against a gateway.

They come with its source distribution, which .ci/redis-tests fetches. Those of commands that came after Redis 7.0 skip
themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from penstock.broker import ServeConfig
from support.processes import Serving
from support.sources import ROOT

from ..conftest import NEEDS, GatewayProcess

OURS_FAIL = {
    "test_xadd": "chooses an id, and ids say when and where the broker appended",
    "test_xadd_explicit_ms": "chooses an id",
    "test_xgroup_create_entriesread": "fails against Redis 7.0.15, too",
}
"""Those that fail, and why."""

HERE = Path(sys.prefix, "sdists")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the tests of redis-py."""
    for name in ("hiredis", "uvloop", "redis"):
        pytest.importorskip(name, reason=NEEDS)
    found = sorted(HERE.glob("redis-*.tar.gz"))
    if not found:
        pytest.skip(f"the source of redis is not in {HERE}: .ci/redis-tests fetches it, once for each environment")
    directory = tmp_path_factory.mktemp("redis-py")
    with tarfile.open(found[-1]) as archive:
        archive.extractall(directory, filter="data")
    return next(directory.iterdir())


@pytest.fixture
def own(shipped: Path, tmp_path: Path, folder: Path) -> Iterator[GatewayProcess]:
    """A gateway whose topics may be deleted."""
    config = ServeConfig(data=str(tmp_path / "data"), listen=(f"unix://{folder}/y",), board_rows=64)
    with Serving(config) as serving:
        gateway = GatewayProcess(serving.url)
        yield gateway
        assert gateway.stop() == 0


def outcomes(report: Path) -> dict[str, str]:
    """What became of each test that did not skip: "" if it passed, else how it failed."""
    found: dict[str, str] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [part.get("message", "") for kind in ("failure", "error") for part in case.iter(kind)]
        if bad or case.find("skipped") is None:
            found[case.get("name", "")] = bad[0] if bad else ""
    return found


def test_what_redis_py_expects_of_streams(own: GatewayProcess, shipped: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    command = [
        *(sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "without_flushdb"),
        *("tests/test_commands.py", "-k", "test_x", f"--redis-url=redis://127.0.0.1:{own.port}/0"),
        f"--junitxml={report}",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "support" / "redis_py")}
    done = subprocess.run(command, cwd=shipped, env=environment, capture_output=True, text=True, timeout=280)
    assert report.exists(), done.stdout + done.stderr
    found = outcomes(report)
    assert len(found) >= 32
    assert {name: why for name, why in found.items() if why and name not in OURS_FAIL} == {}
    assert {name for name in OURS_FAIL if not found[name]} == set()  # what passes by now is not excused
