"""Traces of our own: commands and the full answer, in the notation of etcd's vectors.

`pytest tests/broker/raft/test_traces.py --rewrite` writes the answers of now into the files; read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.raft_interaction import Interaction
from support.raft_traces import Block, differences, rewritten

TRACES = sorted(Path(__file__).with_name("traces").glob("*.txt"))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_a_trace_is_what_it_was(path, request):
    text = path.read_text()
    if request.config.getoption("--rewrite"):
        path.write_text(rewritten(text, Interaction().run))
    else:
        assert differences(text, Interaction().run) == []


def test_a_rewritten_trace_keeps_its_comments_and_has_the_answers_of_now():
    text = "# one node\nadd-nodes 1 voters=(1) index=2\n----\nwrong\n\n# its log\nraft-log 1\n----\n\n# the end\n"
    new = rewritten(text, Interaction().run)
    assert new == (
        "# one node\nadd-nodes 1 voters=(1) index=2\n----\nok\n\n"
        "# its log\nraft-log 1\n----\nlog is empty: first index=3, last index=2\n\n# the end\n"
    )
    assert differences(new, Interaction().run) == []


def test_lines_of_a_log_do_not_count_and_other_lines_do():
    def answer(block: Block) -> str:
        return "a\nINFO said by the way"

    assert differences("x\n----\nDEBUG another word\na\n", answer) == []
    assert differences("x\n----\nb\n", answer) != []
