"""Small files are replaced as a whole, and a directory is worked on by one process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from msgspec import Struct
from penstock.errors import InvalidArgument, TargetInUse
from penstock.spark.pipelines import durable


class Note(Struct):
    number: int


def test_what_was_written_is_read(tmp_path):
    durable.write(tmp_path / "deep/er/note.json", Note(1))
    durable.write(tmp_path / "deep/er/note.json", Note(2))
    assert durable.read(tmp_path / "deep/er/note.json", Note) == Note(2)
    assert [path.name for path in (tmp_path / "deep/er").iterdir()] == ["note.json"]


def test_nothing_is_none(tmp_path):
    assert durable.read(tmp_path / "note.json", Note) is None


def test_a_file_of_somebody_else_is_refused(tmp_path):
    (tmp_path / "note.json").write_text('{"number": "many"}')
    with pytest.raises(TargetInUse, match=r"note\.json is not a file of this pipeline"):
        durable.read(tmp_path / "note.json", Note)


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    sentence = r"directory .*/file/checkpoint cannot be written \(Not a directory\): name another, or mend it"
    with pytest.raises(InvalidArgument, match=sentence), durable.locked(tmp_path / "file" / "checkpoint"):
        pass


HOLD = """
import sys
from pathlib import Path
from penstock.spark.pipelines import durable
with durable.locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_is_gone(tmp_path):
    place = tmp_path / "checkpoint"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", HOLD, str(place)], stdin=pipe, stdout=pipe, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            with pytest.raises(TargetInUse, match="another process works in"), durable.locked(place):
                pass
        finally:
            other.kill()
    with durable.locked(place):
        pass
