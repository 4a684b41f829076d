"""Deserializing the records of a call that returns many, by the application's own function.

Idea: the function may be slow, so it runs without the client's lock, which was held to find each run.

Contract: a record that cannot be loaded keeps none before it from the application. It counts as handed out once its
error is raised. A run is loaded by one thread at a time. Must not know what the function does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...storage.record import Record
from ..errors import CannotDeserialize
from .handout import LoadingRun

if TYPE_CHECKING:
    from .handout import Handout
    from .reader import Reader


def loaded(
    core: Reader, run: Handout | None, most: int, behind: Callable[[], Handout | None] = lambda: None
) -> list[Record[Any]]:
    """At most `most` records of a run and those `behind` it, loaded, up to one that cannot be: the next call raises
    that. Call it without the client's lock.

    Raises: CannotDeserialize for the first record. After what is no Exception, all records of the call come again.
    """
    try:
        return _loaded(run, most, behind)
    except Exception:
        raise
    except BaseException:
        core.back_to = core.begun
        raise


def _loaded(run: Handout | None, most: int, behind: Callable[[], Handout | None]) -> list[Record[Any]]:
    taken: list[Record[Any]] = []
    while run is not None:
        try:
            while len(taken) < most and run.left:
                taken.append(next(run.iterator))
        except StopIteration:
            pass  # dropped meanwhile
        except CannotDeserialize:
            if not taken:
                raise
            assert isinstance(run.iterator, LoadingRun), "only such a run loads"
            run.iterator.back()
            break
        run = behind() if len(taken) < most else None
    return taken
