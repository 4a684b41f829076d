"""A rehearsal shows what was done to it, and the files below never change."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock.storage.files import Files
from penstock.storage.rehearsal import RehearsalFiles


def everything(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(root.rglob("*"))}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "inside").write_bytes(b"deep")
    (tmp_path / "a").write_bytes(b"0123456789")
    (tmp_path / "b").write_bytes(b"b")
    return tmp_path


def test_nothing_that_is_done_to_it_reaches_the_disk(root: Path) -> None:
    before = everything(root)
    files = RehearsalFiles(Files())
    file = files.open(f"{root}/a", write=True)
    file.pwritev([b"AB", b"C"], 8)
    file.allocate(20)
    file.sync()
    files.rename(f"{root}/whole", f"{root}/whole.lost")
    files.unlink(f"{root}/b")
    files.rewrite(f"{root}/c", b"new")
    files.mkdir(f"{root}/d")
    assert everything(root) == before
    assert file.pread(30, 0) == b"01234567ABC" + bytes(9)
    assert (file.pread(2, 7), bytes(file.map()[9:12]), file.size()) == (b"7A", b"BC\0", 20)
    assert sorted(files.listdir(str(root))) == ["a", "c", "whole.lost"]
    assert files.read(f"{root}/c") == b"new"
    assert files.read(f"{root}/a")[:9] == b"01234567A"
    assert not files.is_file(f"{root}/whole.lost")
    file.close()


def test_a_file_that_is_moved_keeps_its_bytes_and_may_be_written_on(root: Path) -> None:
    files = RehearsalFiles(Files())
    files.replace(f"{root}/a", f"{root}/b")
    assert files.read(f"{root}/b") == b"0123456789"
    files.open(f"{root}/b", write=True).pwritev([b"xy"], 1)
    files.rename(f"{root}/b", f"{root}/e")
    assert files.read(f"{root}/e") == b"0xy3456789"
    for gone in "ab":
        with pytest.raises(FileNotFoundError):
            files.open(f"{root}/{gone}")
    files.create(f"{root}/a", 3).close()
    assert files.read(f"{root}/a") == bytes(3)


def test_a_directory_is_not_unlinked(root: Path) -> None:
    with pytest.raises(IsADirectoryError):
        RehearsalFiles(Files()).unlink(f"{root}/whole")


@pytest.mark.parametrize("verb", ["remove_tree", "try_lock", "rename_dir"])
def test_what_it_does_not_rehearse_it_does_not_do(root: Path, verb: str) -> None:
    before = everything(root)
    with pytest.raises(NotImplementedError):
        getattr(RehearsalFiles(Files()), verb)(*[f"{root}/whole"] * (2 if verb == "rename_dir" else 1))
    assert everything(root) == before
