"""Where a log and the data directory that adopts it may be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from penstock import Log
from penstock.clients import InvalidArgument
from penstock.clients.adopting import adopt

COUNT = 20


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A log."""
    with Log(tmp_path / "log") as log:
        log.append([b"v"] * COUNT)
    return tmp_path / "log"


def test_one_inside_of_the_other_is_refused(place):
    before = sorted(os.listdir(place))
    with pytest.raises(InvalidArgument, match="one inside of the other"):
        adopt(str(place / "deep/data"), "flights", str(place))
    assert sorted({*os.listdir(place)} - {"lock"}) == sorted({*before} - {"lock"})


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_link_to_a_log_is_refused_because_it_would_lead_nowhere(place, tmp_path, slash):
    link = tmp_path / "link"
    link.symlink_to(place)
    with pytest.raises(InvalidArgument, match=f"symbolic link.*give {place}$"):
        adopt(str(tmp_path / "data"), "flights", f"{link}{slash}")
    assert link.exists()
    assert not (tmp_path / "data").exists()
    (tmp_path / "up").symlink_to(tmp_path)
    assert adopt(str(tmp_path / "data"), "flights", f"{tmp_path}/up/log").records == COUNT


def test_a_data_directory_that_is_not_there_is_made_where_the_log_can_move(place, tmp_path):
    assert adopt(str(tmp_path / "some/where/data"), "flights", str(place)).records == COUNT
