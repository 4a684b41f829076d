"""Where a door listens, and what it leaves when it stops."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from penstock.gateway.connections import AllConnections
from penstock.gateway.listening import Listeners
from penstock.transport.errors import CannotListen
from penstock.transport.url import DOOR_SCHEMES, parse


@pytest.mark.parametrize("taken_over", [False, True])
def test_a_path_goes_with_its_door_unless_another_process_has_taken_it_over(folder: Path, taken_over: bool) -> None:
    path = folder / "door"

    async def closed() -> bool:
        listeners = Listeners(asyncio.Protocol, AllConnections(10))
        await listeners.open([parse(f"unix://{path}", schemes=DOOR_SCHEMES)])
        if taken_over:
            path.rename(folder / "before")  # so that the inode of the next one is another
            server = await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, path)
        listeners.close()
        listeners.close()
        is_there = path.is_socket()
        if taken_over:
            server.close()
            path.unlink()
            (folder / "before").unlink()
        return is_there

    assert asyncio.run(closed()) == taken_over


def test_a_path_that_cannot_be_bound_is_named() -> None:
    listeners = Listeners(asyncio.Protocol, AllConnections(10))
    with pytest.raises(CannotListen, match="unix:///proc/door"):
        asyncio.run(listeners.open([parse("unix:///proc/door", schemes=DOOR_SCHEMES)]))
