"""`python -m perf`, as one calls it: in a process of its own, since it takes signals and descriptors for itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from perf import __main__
from perf.lab import archive
from perf.lab.harness import Lab

ROOT = Path(__file__).parents[2]


def perf(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    called = [sys.executable, "-m", "perf", *map(str, arguments)]
    return subprocess.run(called, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_bench_of_long_rows_alone_does_not_fail_the_short_run(tmp_path):
    found = perf("hostile", "--directory", tmp_path)
    assert found.returncode == 0, found.stderr
    said = " ".join(found.stdout.split())
    assert "hostile: nothing was measured, as all of its rows take long; --full measures them" in said


def test_a_bench_that_is_not_there_is_refused_by_name(tmp_path):
    found = perf("hostil", "--directory", tmp_path)
    assert found.returncode == 2
    assert "'hostil' is not one of" in found.stderr


def test_a_record_of_its_own_is_written_and_that_of_the_documents_left(tmp_path, monkeypatch):
    record, page = tmp_path / "record", archive.RECORD / archive.PAGE
    before = page.read_bytes()
    monkeypatch.setattr(__main__, "OUTCOME", archive.RECORD / archive.RESULTS)
    __main__._keep("ranges", Lab(tmp_path, 1, 0.1), 0.1, record / archive.RESULTS)
    assert [path.name for path in (record / archive.RESULTS).iterdir()] == ["ranges.json"]

    found = perf("--report", "--record", record)
    assert found.returncode == 0, found.stderr
    assert "\n## ranges\n" in (record / archive.PAGE).read_text()
    assert page.read_bytes() == before
