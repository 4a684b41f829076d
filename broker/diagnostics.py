"""What the processes tell their operator: sentences, through the standard logging module.

Idea: every process of a broker calls `begin` once, with its part and the operator's choice: standard error, or a file
of its own in a directory, as text or JSON lines. What libraries log goes the same way. One process writes a file, so
that rotating needs no lock; the process after it goes on in the same file.

Contract: saying something never ends a process, raises nothing, and waits for no reader. When the reader of a pipe has
left or does not read, or the disk is full, the sentence is dropped. Memory and disk: `files` files of `file_bytes` for
each part. Must not know what is said.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from typing import Any, Literal

from msgspec import Struct, structs

from ..storage.printable import printable, printable_below
from .pipes import PipeLines

PARTS = {"": "penstock", "broker": "penstock", "supervisor": "penstock"}
"""What sentences on standard error begin with; of other parts it is their name too."""

_LOGGER = logging.getLogger("penstock")


Level = Literal["debug", "info", "warning", "error"]


class DiagnosticOptions(Struct, frozen=True, kw_only=True):
    """Where sentences go. Sizes in bytes, times in seconds."""

    level: Level = "warning"
    format: Literal["text", "json"] = "text"
    directory: str = ""  # has PART.log of each part; "": standard error
    file_bytes: int = 10 << 20  # a file is rotated before it is larger
    files: int = 5  # of each part, the newest with it
    age_s: float = 7 * 86400.0  # a file is rotated when it is older


def say(sentence: str, level: int = logging.WARNING) -> None:
    """Tell the operator something."""
    if not _LOGGER.hasHandlers():
        begin("", DiagnosticOptions())
    _LOGGER.log(level, sentence)


def crashed(error: BaseException) -> None:
    """Tell of a bug that ends this process, with its traceback."""
    if not _LOGGER.hasHandlers():
        begin("", DiagnosticOptions())
    _LOGGER.critical("ended by an error that should not happen", exc_info=error)


def begin(part: str, options: DiagnosticOptions) -> None:
    """Have this process log as `part`: to standard error, which is told so, where its file cannot be written."""
    handler, failed = _handler(part, options)
    if failed is not None:
        options = structs.replace(options, directory="")
    if options.format == "json":
        handler.setFormatter(JsonLines(part))
    elif options.directory:
        handler.setFormatter(TextLines(f"{{asctime}} {{levelname:<7}} {part}[{os.getpid()}] {{message}}", style="{"))
    else:
        handler.setFormatter(OneLine(f"{PARTS.get(part, f'penstock {part}')}: %(message)s"))
    root = logging.getLogger()
    for before in list(root.handlers):
        root.removeHandler(before)
        before.close()
    root.addHandler(handler)
    root.setLevel(options.level.upper())
    if failed is not None:
        say(f"the log of the {part} cannot be written, so it is here: {failed}")


def _handler(part: str, options: DiagnosticOptions) -> tuple[logging.Handler, OSError | None]:
    """What writes the log, and why it is no file where one is wanted."""
    if options.directory:
        try:
            os.makedirs(options.directory, mode=0o700, exist_ok=True)
            return AgedFile(f"{options.directory}/{part}.log", options), None
        except OSError as error:
            return StandardError(), error
    return StandardError(), None


class OneLine(logging.Formatter):
    """A sentence is one line, whatever names of clients stand in it. A traceback follows in lines that are indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return printable_below(super().formatException(ei))


class TextLines(OneLine):
    """Lines with the time in UTC, as of RFC 3339."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return _time(record)


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": _time(record), "level": record.levelname.lower(), "part": self._part, "pid": record.process,
            "logger": record.name, "message": record.getMessage(),
        }  # fmt: skip
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said)


class StandardError(logging.Handler):
    """Standard error as it is now, whatever has become of it.

    Lines that a pipe has no room for are left out, and the first one that it has room for again says how many.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lines = PipeLines()

    def emit(self, record: logging.LogRecord) -> None:
        missed = self._lines.left_out
        try:
            if not missed or self._write(self.format(_left_out(record, missed))):
                self._write(self.format(record))
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)  # what is still buffered would fail again when Python exits
            os.dup2(null, sys.stderr.fileno())
            os.close(null)
        except OSError:
            pass  # the next line is tried again: a disk may have room then

    def _write(self, line: str) -> bool:
        """Write a line. Returns whether there was room for it."""
        try:
            place = sys.stderr.fileno()
        except (OSError, ValueError):  # something else stands for it, as in tests
            print(line, file=sys.stderr, flush=True)
            return True
        return self._lines.write(place, f"{line}\n".encode(errors="backslashreplace"))


def _left_out(record: logging.LogRecord, count: int) -> logging.LogRecord:
    """What stands for lines that were left out before this one."""
    said = {"msg": f"lines that nothing read here and that are left out: {count}", "args": ()}
    return logging.makeLogRecord({**record.__dict__, **said, "exc_info": None, "exc_text": None, "stack_info": None})


class AgedFile(RotatingFileHandler):
    """A file that is rotated by size and by age: PART.log, PART.log.1 and so on, the oldest last."""

    def __init__(self, path: str, options: DiagnosticOptions) -> None:
        self._age_s = options.age_s
        self._begun_s = _begun_s(path)
        count = max(options.files - 1, 0)
        super().__init__(path, maxBytes=options.file_bytes, backupCount=count, encoding="utf-8", errors="replace")
        os.chmod(path, 0o600)

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        return record.created - self._begun_s > self._age_s or bool(super().shouldRollover(record))

    def doRollover(self) -> None:
        super().doRollover()
        self._begun_s = time.time()
        if not self.backupCount:
            os.truncate(self.baseFilename, 0)
        os.chmod(self.baseFilename, 0o600)

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop what cannot be written: a disk may have room for the next sentence."""


def _begun_s(path: str) -> float:
    """When a file's first line was written; now, if it has none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            line = file.readline()
        text = json.loads(line)["time"] if line.startswith("{") else line.partition(" ")[0]
        return datetime.fromisoformat(text).timestamp()
    except (OSError, ValueError, KeyError, TypeError):
        return time.time()


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
