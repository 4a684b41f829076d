"""Appends that failed half-way: what their callers were told is not there does not come back, after any crash."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from typing import Any

import pytest
from penstock.storage.batch import encode
from penstock.storage.errors import Poisoned, StorageFull
from support.crashes import PATH, Survivor, World, images
from support.files import RecordingFile, RecordingFiles

HOWS = ("all", "none", "some", "some", "some")
SIZES = {
    "one": [10],
    "several": [10, 20, 30],
    "two segments": [9000, 10, 9000, 9000],
    "a new segment": [17_000, 17_000],
}


class ShortWrites(RecordingFiles):
    """The nth write into a segment stops after a share of its bytes and fails; then calls of `also` fail, too."""

    nth = 0
    share = 1.0
    also: str | None = None

    def create(self, path: str, size: int = 0) -> Any:
        super().create(path, size).close()
        return ShortFile(path, self, self.contents[path])

    def open(self, path: str, *, write: bool = False) -> Any:
        super().open(path, write=write).close()
        return ShortFile(path, self, self.contents[path])


class ShortFile(RecordingFile):
    __slots__ = ()

    def pwritev(self, buffers: Sequence[Any], position: int) -> None:
        files = self._files
        assert isinstance(files, ShortWrites)
        if position >= 4096 and self.path.endswith(".segment") and files.nth:
            files.nth -= 1
            if not files.nth:
                data = b"".join(buffers)
                super().pwritev([data[: int(len(data) * files.share)]], position)
                if files.also is not None:
                    files.fail(files.also, 1, errno.EIO)
                raise StorageFull("cannot write: no space is left on the device")
        super().pwritev(buffers, position)


def refused(sizes: list[int], nth: int, share: float, also: str | None) -> tuple[World, BaseException | None]:
    """A log with a durable batch and a written one, whose last append failed; the failure, None when there was none."""
    files = ShortWrites(directories=[PATH, ""])
    world = World(files)
    for operation in ("append", "append_big", "sync", "append"):
        world.run(operation)
    files.nth, files.share, files.also = nth, share, also
    try:
        world.open().append([bytes(encode([b"refused".ljust(size)])) for size in sizes], 9)
    except (StorageFull, Poisoned) as error:
        return world, error
    finally:
        files.nth = 0
    return world, None


def check(world: World, start: int, seed: int) -> None:
    choose = random.Random(seed)
    for image, truth in images(world.files, choose, start, HOWS, world.truth()):
        Survivor(image, world.history, truth)


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_no_crash_before_or_after_the_next_append_brings_back_what_was_refused(sizes: list[int], share: float) -> None:
    for nth in range(1, 5):
        world, error = refused(sizes, nth, share, None)
        if error is None:
            assert nth > 1
            return
        assert isinstance(error, StorageFull)
        start = len(world.files.journal)
        check(world, start, nth)
        for operation in ("append", "sync", "append_big", "close"):
            world.run(operation)
        check(world, start, nth)


@pytest.mark.parametrize("also", ["write", "sync", "open"])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_where_it_cannot_be_taken_back_the_log_takes_no_more_and_does_not_say_that_it_is_not_there(
    sizes: list[int], also: str
) -> None:
    errors: list[type[BaseException]] = []
    for nth in range(1, 5):
        world, error = refused(sizes, nth, 1.0, also)
        world.files.heal()
        if error is None:
            break
        errors.append(type(error))
        if isinstance(error, Poisoned):
            with pytest.raises(Poisoned):
                world.run("append")
            world.history = world.history[: world.durable]
        check(world, len(world.files.journal), nth)
    assert errors[-1] is Poisoned, "the write that the others follow comes last"
