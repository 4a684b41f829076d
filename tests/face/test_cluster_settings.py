"""Settings of a member that its cluster could not go on with."""

from __future__ import annotations

from pathlib import Path

import pytest
from penstock.broker.intake import TURN_BYTES
from penstock.broker.peers.messages import FRAME_BYTES_MAX
from penstock.cli.serve import CLUSTER_FRAME_BYTES, SPARE_BYTES, serve_config
from penstock.config import InvalidConfig, load

PEERS = "1=tcp://127.0.0.1:7071,2=tcp://127.0.0.1:7073,3=tcp://127.0.0.1:7075"
MIB = 1 << 20


def config_of(tmp_path: Path, listeners: int, **settings: object):
    listen = ",".join(f"unix://{tmp_path}/{number}.sock" for number in range(listeners))
    return load(
        {"data": str(tmp_path), "listen": listen, "cluster": "c", "node": 1, "peer": PEERS, **settings}, environ={}
    ).config


@pytest.mark.parametrize("listeners", [1, 2])
def test_what_a_turn_takes_fits_into_a_frame_between_nodes(tmp_path: Path, listeners: int) -> None:
    """It is one entry: one that is larger was cut off at every follower, and nothing was committed any more."""
    most = 56 * MIB // listeners
    made = serve_config(config_of(tmp_path, listeners, max_frame_bytes=most))
    assert made.node["max_frame_bytes"] == most
    assert TURN_BYTES + listeners * most + SPARE_BYTES <= FRAME_BYTES_MAX
    with pytest.raises(InvalidConfig, match=f"max_frame_bytes={most + 1} is over {most}"):
        serve_config(config_of(tmp_path, listeners, max_frame_bytes=most + 1))


def test_a_cluster_that_does_not_say_has_small_frames(tmp_path: Path) -> None:
    assert serve_config(config_of(tmp_path, 1)).node["max_frame_bytes"] == CLUSTER_FRAME_BYTES
