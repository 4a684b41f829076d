"""What a power cut must not take from a checkpoint, and which checkpoints are ours to sync."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from penstock.spark.syncing import local_checkpoint, sync_micro_batch


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files and directories that were synced since the test began, in order."""
    found: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: found.append(Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
    return found


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """As Spark has made it when it begins its third micro-batch."""
    found = tmp_path / "checkpoint"
    (found / "offsets").mkdir(parents=True)
    for name in ("metadata", "offsets/0", "offsets/1", "offsets/2"):
        (found / name).touch()
    return found


def test_the_end_of_a_micro_batch_is_synced_and_once_all_that_says_whose_it_is(checkpoint, synced):
    sync_micro_batch(checkpoint, 1)
    assert synced[:2] == [checkpoint / "offsets/1", checkpoint / "offsets"]
    assert synced[2:] == [checkpoint / "metadata", checkpoint, checkpoint.parent]
    sync_micro_batch(checkpoint, 2)
    assert synced[5:] == [checkpoint / "offsets/2", checkpoint / "offsets"]


def test_a_checkpoint_that_was_made_again_is_another(checkpoint, synced):
    sync_micro_batch(checkpoint, 0)
    (checkpoint / "metadata").rename(checkpoint / "metadata.before")
    (checkpoint / "metadata").touch()
    sync_micro_batch(checkpoint, 0)
    assert synced.count(checkpoint / "metadata") == 2


def test_a_checkpoint_that_is_named_from_here_is_synced_with_its_name(checkpoint, synced, monkeypatch):
    monkeypatch.chdir(checkpoint)
    sync_micro_batch(Path("."), 0)
    assert synced[-2:] == [checkpoint, checkpoint.parent]


def test_an_end_that_is_not_there_is_an_error(checkpoint):
    with pytest.raises(FileNotFoundError, match="offsets/3"):
        sync_micro_batch(checkpoint, 3)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_checkpoint_of_this_machine_is_found(checkpoint, form):
    found = local_checkpoint(form.format(checkpoint))
    assert found is not None
    assert os.path.samefile(found, checkpoint)


def test_a_checkpoint_is_named_from_where_spark_runs(checkpoint, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    assert local_checkpoint("checkpoint") == Path("checkpoint")


def test_a_colon_in_a_directory_is_no_scheme(tmp_path):
    (tmp_path / "a:b" / "offsets").mkdir(parents=True)
    assert local_checkpoint(str(tmp_path / "a:b")) == tmp_path / "a:b"


@pytest.mark.parametrize("location", ["", "hdfs://there{}", "s3a:{}", "/not/on/this/machine"])
def test_what_others_keep_is_left_to_them(location, checkpoint, monkeypatch):
    monkeypatch.chdir(checkpoint)  # "" is not the directory where one is
    assert local_checkpoint(location.format(checkpoint)) is None
