"""Files that write down what is done to them, and the disks a power cut could leave of that.

Idea: `RecordingFiles` behaves as memory does and keeps a journal of every write, reservation, sync and change of
a name. `Disk` replays a journal up to any point and knows what is certain (synced) and what is only possible;
`image` builds one possible disk from choices a seeded random source makes: for every 4 KiB page written since its
file's last sync any version it had, torn at 512-byte sectors or not; for names any number of the changes
not yet synced, in order, or with one lost; sizes as they were or as they would be.

Contract: deterministic by seed. A sync makes bytes and size of a file certain, not its name; that is for the directory.
`fail` makes the nth call of a kind raise instead, once or from then on.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.storage.files import File, full_or
from penstock.storage.memory_files import Content, MemoryFile, MemoryFiles

if TYPE_CHECKING:
    from collections.abc import Buffer

PAGE = 4096
SECTOR = 512


@dataclass(frozen=True)
class Write:
    """Bytes put into a file; `size` is set instead when only room was reserved."""

    file: int
    position: int
    data: bytes
    size: int = 0


@dataclass(frozen=True)
class Sync:
    file: int


@dataclass(frozen=True)
class FailedSync:
    """The kernel told it once: what was dirty is clean now, and may or may not be on the disk."""

    file: int


@dataclass(frozen=True)
class Name:
    """A change of names: `target` now means `file` (None: nothing), and `source` nothing any more."""

    target: str
    file: int | None
    source: str = ""


@dataclass(frozen=True)
class SyncDir:
    path: str


@dataclass(frozen=True)
class Note:
    """What the test wants to remember at this point."""

    value: object


Operation = Write | Sync | FailedSync | Name | SyncDir | Note


class RecordingFiles(MemoryFiles):
    """Memory with a journal, and calls that fail when told to."""

    def __init__(self, base: dict[str, bytes] | None = None, directories: Sequence[str] = ()) -> None:
        super().__init__()
        self.journal: list[Operation] = []
        self.numbers: dict[int, Content] = {}
        self.directories |= set(directories)
        self.base = dict(base or {})
        self._originals: dict[str, int] = {}
        self.calls: dict[str, int] = {}
        self._failing: dict[str, tuple[int, int, bool]] = {}
        for path, data in self.base.items():
            self._originals[path] = self._adopt(path, data)

    def original(self, path: str) -> int:
        """The number of a file that was there from the start."""
        return self._originals[path]

    def _adopt(self, path: str, data: bytes) -> int:
        content = self.contents[path] = Content(data)
        self.numbers[id(content)] = content
        return id(content)

    def number(self, path: str) -> int:
        return id(self.contents[path])

    def note(self, value: object) -> None:
        self.journal.append(Note(value))

    def fail(self, kind: str, nth: int, code: int = errno.ENOSPC, *, once: bool = True) -> None:
        """Make the nth call from now of "create", "open", "allocate", "write", "sync" or "sync_dir" raise."""
        self.calls[kind] = 0
        self._failing[kind] = (nth, code, once)

    def heal(self) -> None:
        self._failing.clear()

    def called(self, kind: str, path: str) -> None:
        count = self.calls[kind] = self.calls.get(kind, 0) + 1
        nth, code, once = self._failing.get(kind, (0, 0, True))
        if nth and (count == nth if once else count >= nth):
            error = OSError(code, errno.errorcode[code], path)
            raise full_or(error, path, kind) from error

    def create(self, path: str, size: int = 0) -> File:
        self.called("create", path)
        if size:
            self.called("allocate", path)
        if path in self.contents:
            raise FileExistsError(path)
        number = self._adopt(path, bytes(size))
        self.journal.append(Name(path, number))
        if size:
            self.journal.append(Write(number, 0, b"", size))
        return RecordingFile(path, self, self.contents[path])

    def open(self, path: str, *, write: bool = False) -> File:
        self.called("open", path)
        return RecordingFile(path, self, self._content(path))

    def replace(self, source: str, target: str) -> None:
        number = self.number(source) if source in self.contents else 0
        super().replace(source, target)
        self.journal.append(Name(target, number, source))

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self.journal.append(Name(path, None))

    def sync_dir(self, path: str) -> None:
        self.called("sync_dir", path)
        self.journal.append(SyncDir(path))


class RecordingFile(MemoryFile):
    """One open file of RecordingFiles."""

    __slots__ = ("_files",)

    def __init__(self, path: str, files: RecordingFiles, content: Content) -> None:
        super().__init__(path, content)
        self._files = files

    def pwritev(self, buffers: Sequence[Buffer], position: int) -> None:
        self._files.called("write", self.path)
        super().pwritev(buffers, position)
        self._files.journal.append(Write(id(self.content), position, b"".join(buffers)))

    def allocate(self, size: int) -> None:
        self._files.called("allocate", self.path)
        super().allocate(size)
        self._files.journal.append(Write(id(self.content), 0, b"", size))

    def sync(self) -> None:
        try:
            self._files.called("sync", self.path)
        except Exception:
            self._files.journal.append(FailedSync(id(self.content)))
            raise
        self._files.journal.append(Sync(id(self.content)))


@dataclass
class Inode:
    """One file: its certain bytes, and its bytes after each write since.

    `doubt` has the pages whose sync failed, each with what it may be: no later sync writes them unless they are
    written again.
    """

    certain: bytes = b""
    latest: bytearray = field(default_factory=bytearray)
    versions: list[bytes] = field(default_factory=list)
    doubt: dict[int, list[bytes]] = field(default_factory=dict)

    def write(self, operation: Write) -> None:
        end = max(operation.size, operation.position + len(operation.data))
        if end > len(self.latest):
            self.latest.extend(bytes(end - len(self.latest)))
        self.latest[operation.position : operation.position + len(operation.data)] = operation.data
        self.versions.append(bytes(self.latest))

    def sync(self) -> None:
        for place in self.dirty_pages():
            self.doubt.pop(place, None)
        self.certain = bytes(self.latest)
        self.versions.clear()

    def fail(self) -> None:
        """A sync failed: clean in memory, unknown on the disk."""
        for place in self.dirty_pages():
            known = self.doubt.get(place, [])
            self.doubt[place] = [*known, *(_page(each, place) for each in [self.certain, *self.versions])]
        self.certain = bytes(self.latest)
        self.versions.clear()

    def dirty_pages(self) -> list[int]:
        """Numbers of the pages that may differ from what is certain."""
        states = [self.certain, *self.versions]
        size = max(map(len, states))
        return [place for place in range(-(-size // PAGE)) if len({_page(each, place) for each in states}) > 1]

    def possible(self, choose: random.Random, how: str) -> bytes:
        """One content the disk may have."""
        found = self._possible(choose, how)
        for place, states in self.doubt.items():
            if place not in self.dirty_pages() or how == "none":
                page = states[0 if how == "none" else -1] if how != "some" else choose.choice(states)
                page = page[: max(0, len(found) - place * PAGE)]
                found = found[: place * PAGE] + page + found[place * PAGE + len(page) :]
        return found

    def _possible(self, choose: random.Random, how: str) -> bytes:
        if how == "none" or not self.versions:
            return self.certain
        if how == "all":
            return self.versions[-1]
        size = choose.choice([len(self.certain), len(self.versions[-1])])
        found = bytearray(self.certain.ljust(size, b"\0"))
        for place in self.dirty_pages():
            page = self._possible_page(place, choose)
            if page != _page(self.certain, place) and len(found) < place * PAGE + len(page):
                found.extend(bytes(place * PAGE + len(page) - len(found)))
            found[place * PAGE : place * PAGE + len(page)] = page
        return bytes(found)

    def _possible_page(self, place: int, choose: random.Random) -> bytes:
        states = list(dict.fromkeys(_page(each, place) for each in [self.certain, *self.versions]))
        if choose.random() < 0.6:
            return choose.choice(states)
        torn = [choose.choice(states)[start : start + SECTOR] for start in range(0, PAGE, SECTOR)]
        return b"".join(torn)


def _page(data: bytes, place: int) -> bytes:
    page = data[place * PAGE : (place + 1) * PAGE]
    return page if len(page) == PAGE or not page else page.ljust(PAGE, b"\0")


class Disk:
    """What a journal left on the disk up to some point, certain and possible."""

    def __init__(self, files: RecordingFiles) -> None:
        self._inodes: dict[int, Inode] = {}
        self._names: dict[str, int] = {}
        self._pending: list[Name] = []
        self.directories = set(files.directories)
        for path, data in files.base.items():
            number = files.original(path)
            self._inodes[number] = Inode(data, bytearray(data))
            self._names[path] = number

    def apply(self, operation: Operation) -> None:
        """Go one operation further."""
        if isinstance(operation, Write):
            self._inodes[operation.file].write(operation)
        elif isinstance(operation, Sync):
            self._inodes[operation.file].sync()
        elif isinstance(operation, FailedSync):
            self._inodes[operation.file].fail()
        elif isinstance(operation, Name):
            if operation.file is not None:
                self._inodes.setdefault(operation.file, Inode())
            self._pending.append(operation)
        elif isinstance(operation, SyncDir):
            within = [each for each in self._pending if _directory(each.target) == operation.path]
            _rename_all(self._names, within)
            self._pending = [each for each in self._pending if each not in within]

    def image(self, choose: random.Random, how: str) -> dict[str, bytes]:
        """Path to content of one disk: "none" of what is not certain, "all" of it, or "some"."""
        names = dict(self._names)
        _rename_all(names, self._surviving(choose, how))
        return {path: self._inodes[number].possible(choose, how) for path, number in sorted(names.items())}

    def _surviving(self, choose: random.Random, how: str) -> list[Name]:
        if how == "none" or not self._pending:
            return []
        if how == "all":
            return self._pending
        count = choose.randint(0, len(self._pending))
        kept = self._pending[:count]
        if count > 1 and choose.random() < 0.3:
            kept = _without(kept, choose.randrange(count))
        return kept


def _without(changes: list[Name], lost: int) -> list[Name]:
    """The changes without one, and without those that need it."""
    gone = {changes[lost].target}
    kept = changes[:lost]
    for each in changes[lost + 1 :]:
        if each.source in gone or (each.file is None and each.target in gone):
            gone.add(each.target)
        else:
            kept.append(each)
    return kept


def _rename_all(names: dict[str, int], changes: Sequence[Name]) -> None:
    for each in changes:
        names.pop(each.source, None)
        if each.file is None:
            names.pop(each.target, None)
        else:
            names[each.target] = each.file


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
