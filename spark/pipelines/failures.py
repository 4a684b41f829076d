"""Extracts one sentence from the failure of a query.

Idea: Spark wraps an error of a Python worker into a text with the frames of both languages. The last line of the
Python traceback in it names one of our errors and its sentence; readers want the sentence, and programs the class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ...storage.errors import Error
from ..errors import PipelineFailed

_OURS = re.compile(r"^\s*(?:[\w.]*: )?penstock(?:\.\w+)*\.(\w+): (.+?)\s*$", re.MULTILINE)
_OTHERS = re.compile(r"^([A-Z]\w+|[\w.]+\.\w+)(: .+|: *\n(?P<below>\S.*))?\s*$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_SHORT = 500


@contextmanager
def one_sentence() -> Iterator[None]:
    """Have what Spark raises in here be an error of penstock."""
    try:
        yield
    except Exception as error:
        found = explained(error)
        if found is error:
            raise
        raise found from error


def explained(error: BaseException) -> BaseException:
    """An error of penstock that says what `error` is about; `error` itself when it is one, or nothing of Spark's."""
    if isinstance(error, Error) or not _is_of_spark(error):
        return error
    found = _OURS.findall(str(error))
    if not found:
        return PipelineFailed(f"Spark says: {_cause(str(error))[:_SHORT]}")
    name, sentence = found[-1]
    kinds = {kind.__name__: kind for kind in _kinds(Error)}
    return kinds.get(name, PipelineFailed)(sentence)


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _kinds(kind: type[Error]) -> Iterator[type[Error]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _cause(text: str) -> str:
    """The end of the last traceback of Python in there; else the first line."""
    *_, last = text.split(_TRACEBACK)
    found = _OTHERS.search(last) if _TRACEBACK in text else None
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (found["below"] or found[0]).strip() if found else next(iter(lines), "it did not say why")
