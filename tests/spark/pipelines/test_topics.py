"""What pipelines ask about their topics, before Spark has anything to do."""

from __future__ import annotations

from functools import partial

import pytest
from penstock.broker.errors import UnknownTopic
from penstock.clients.errors import InvalidArgument
from penstock.spark.pipelines import compact_into, count_dead_letters, rollup
from penstock.spark.pipelines.topics import source_and_target


@pytest.mark.parametrize("pipeline", [rollup, compact_into, count_dead_letters])
def test_a_pipeline_does_not_read_what_it_writes(pipeline, url, new, tmp_path):
    topic = new()
    with pytest.raises(InvalidArgument, match=f"topic {topic} is both source and target"):
        pipeline(None, url, topic, topic, checkpoint=tmp_path / "checkpoint")
    assert not (tmp_path / "checkpoint").exists()


def test_source_and_target_have_to_be_there(url, new):
    there, asked = new(), partial(source_and_target, url)
    with pytest.raises(UnknownTopic, match="nowhere"):
        asked(there, "nowhere")
    with pytest.raises(UnknownTopic, match="nowhere"):
        asked("nowhere", there)
    ids, target = asked(there, new())
    assert list(ids) == [there]
    assert target.startswith("topic ")
