"""The tests of streams that the client redis-py ships, against a gateway.

They come with its source distribution, which .ci/sdists fetches. Those of commands that came after Redis 7.0 skip
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from penstock.broker import ServeConfig
from support import shipped
from support.processes import Serving

from ..conftest import NEEDS, GatewayProcess

OURS_FAIL = {
    "TestRedisCommands.test_xadd": "chooses an id, and ids say when and where the broker appended",
    "TestRedisCommands.test_xadd_explicit_ms": "chooses an id",
    "TestRedisCommands.test_xgroup_create_entriesread": "fails against Redis 7.0.15, too",
}
"""Those that fail, and why."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with the tests of redis-py."""
    for name in ("hiredis", "uvloop", "redis"):
        pytest.importorskip(name, reason=NEEDS)
    return shipped.unpacked("redis", tmp_path_factory.mktemp("redis-py"))


@pytest.fixture
def own(sources: Path, tmp_path: Path, folder: Path) -> Iterator[GatewayProcess]:
    """A gateway whose topics may be deleted."""
    config = ServeConfig(data=str(tmp_path / "data"), listen=(f"unix://{folder}/y",), board_rows=64)
    with Serving(config) as serving:
        gateway = GatewayProcess(serving.url)
        yield gateway
        assert gateway.stop() == 0


def test_what_redis_py_expects_of_streams(own: GatewayProcess, sources: Path) -> None:
    url = f"--redis-url=redis://127.0.0.1:{own.port}/0"
    found = shipped.run(
        sources, ["-p", "without_flushdb", "tests/test_commands.py", "-k", "test_x", url],
        environment={"PYTHONPATH": str(shipped.TESTS / "support" / "redis_py")}, timeout_s=280,
    )  # fmt: skip
    assert len(found) >= 32
    assert shipped.unexcused(found, OURS_FAIL) == {}
