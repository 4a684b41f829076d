"""A checkpoint and a target belong together, and to one piece of work."""

from __future__ import annotations

import pytest
from penstock.errors import TargetInUse
from penstock.spark.pipelines.identity import claim

FLIGHTS = {"flights": "aa"}


def test_a_restart_is_the_same_pipeline(tmp_path):
    first = claim(tmp_path / "c", "archive", FLIGHTS, tmp_path / "t")
    assert claim(tmp_path / "c", "archive", FLIGHTS, tmp_path / "t") == first


def test_new_work_is_another_pipeline(tmp_path):
    first = claim(tmp_path / "c", "archive", FLIGHTS, tmp_path / "t")
    assert claim(tmp_path / "c2", "archive", FLIGHTS, tmp_path / "t2").id != first.id


@pytest.mark.parametrize(
    ("kind", "topics", "target"),
    [("rollup", FLIGHTS, "t"), ("archive", {"trains": "bb"}, "t"), ("archive", {**FLIGHTS, "trains": "bb"}, "t"),
     ("archive", FLIGHTS, "t2")],
)  # fmt: skip
def test_a_checkpoint_of_other_work_is_refused(tmp_path, kind, topics, target):
    claim(tmp_path / "c", "archive", FLIGHTS, tmp_path / "t")
    with pytest.raises(TargetInUse, match=r"checkpoint .*/c belongs to the archive of topic flights into .*/t: name"):
        claim(tmp_path / "c", kind, topics, tmp_path / target)


def test_where_the_checkpoint_is_below_the_target_another_directory_is_the_way_out(tmp_path):
    claim(tmp_path / "t" / "_penstock" / "checkpoint", "archive", FLIGHTS, tmp_path / "t")
    with pytest.raises(TargetInUse, match=r"belongs to the archive of topic flights into .*/t: name another directory"):
        claim(tmp_path / "t" / "_penstock" / "checkpoint", "archive", {"trains": "bb"}, tmp_path / "t")


def test_a_topic_that_was_made_again_is_another_topic(tmp_path):
    claim(tmp_path / "c", "archive", FLIGHTS, tmp_path / "t")
    with pytest.raises(TargetInUse, match="topic flights was deleted and created again since"):
        claim(tmp_path / "c", "archive", {"flights": "bb"}, tmp_path / "t")


def test_a_target_of_another_topic_is_refused_and_nothing_is_claimed(tmp_path):
    claim(tmp_path / "c", "archive", FLIGHTS, tmp_path / "t")
    with pytest.raises(TargetInUse, match="t holds the archive of topic flights, and archive of topic trains is other"):
        claim(tmp_path / "c2", "archive", {"trains": "bb"}, tmp_path / "t")
    claim(tmp_path / "c2", "archive", {"trains": "bb"}, tmp_path / "t2")


def test_a_target_with_files_of_others_is_refused(tmp_path):
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "thesis.txt").write_text("mine")
    with pytest.raises(TargetInUse, match="t holds files that no archive wrote: name an empty directory"):
        claim(tmp_path / "c", "archive", FLIGHTS, tmp_path / "t")


def test_a_crash_between_claiming_both_is_mended(tmp_path):
    first = claim(tmp_path / "c", "archive", FLIGHTS, tmp_path / "t")
    (tmp_path / "t" / "_penstock" / "pipeline.json").unlink()
    assert claim(tmp_path / "c", "archive", FLIGHTS, tmp_path / "t") == first
    with pytest.raises(TargetInUse):
        claim(tmp_path / "c2", "archive", FLIGHTS, tmp_path / "t")


def test_a_topic_as_target_is_marked_by_the_checkpoint_alone(tmp_path):
    claim(tmp_path / "c", "replay", FLIGHTS, "topic again (cc)")
    with pytest.raises(TargetInUse, match=r"into topic again \(cc\): name another checkpoint"):
        claim(tmp_path / "c", "replay", FLIGHTS, "topic again (dd)")
