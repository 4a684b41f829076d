"""Damage to the disk of a member: flipped bytes, lost tails, missing files; only of what the disk had for certain.

What is lost above every mark, and above what the checkpoint says was acknowledged, cannot be told from what was never
synced: no log can notice that, so it is no part of this.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
from penstock.broker.replica.checkpoint import Checkpoint
from penstock.storage import layout, snapshots
from penstock.storage.errors import StorageError
from penstock.storage.layout import DATA_START
from penstock.storage.memory_files import Content, MemoryFile
from penstock.storage.scan import Good, scan
from penstock.storage.scrubbing import log_paths
from penstock.storage.segment import read_page
from support.members import DATA
from support.writeback import WritebackFiles


def damage(files: WritebackFiles, chance: random.Random) -> str:
    """Damage something; says what. Journal of promises and identity stay: without them a member cannot heal."""
    kept = (f"{DATA}/promises", f"{DATA}/node.json", f"{DATA}/damaged")
    names = [name for name in sorted(files.contents) if name not in kept and "/aside/" not in name]
    path = chance.choice(names)
    how = chance.choice(("flipped", "cut", "missing"))
    start, end = _noted(files, path)
    if how == "missing":
        if start is None:
            return "nothing"
        files.unlink(path)
    elif start is None or start >= end:
        return "nothing"
    else:
        place = chance.randrange(start, end)
        for data in (files.contents[path].data, files.disk(files.contents[path]).data):
            if how == "cut":
                del data[place:]
            else:
                data[place : place + 1] = bytes([data[place] ^ (1 << chance.randrange(8))])
    kind = "snapshot" if "snapshot" in path else path.rpartition(".")[2]
    return f"{how} {kind} of {path.split('/')[1]}"


def rot_everywhere(disks: Sequence[WritebackFiles], chance: random.Random) -> str:
    """Flip a bit on each disk, each in another batch of one log, which all of them have.

    Returns the log; "" where there is none.
    """
    paths = log_paths(disks[0], DATA)
    for path in chance.sample(paths, len(paths)):
        places = [_durable_batches(files, path) for files in disks]
        common = sorted(set(places[0]).intersection(*places[1:]))
        if len(common) >= len(disks):
            for files, each, seq in zip(disks, places, chance.sample(common, len(disks)), strict=True):
                name, start, end = each[seq]
                place, bit = chance.randrange(start, end), 1 << chance.randrange(8)
                for data in (files.contents[name].data, files.disk(files.contents[name]).data):
                    data[place] ^= bit
            return path
    return ""


def _durable_batches(files: WritebackFiles, path: str) -> dict[int, tuple[str, int, int]]:
    """File and place of each batch of a log that is known to have been durable, by seq."""
    found = dict[int, tuple[str, int, int]]()
    acknowledged = _acknowledged(files, path) if layout.live_segments(files.listdir(path))[0] else 0
    for each in scan(files, path):
        if isinstance(each, Good) and each.batch.seq <= acknowledged:
            name, end = f"{path}/{each.segment.segment_file}", each.position + each.batch.batch_bytes
            content = files.contents[name]
            is_stored = files.disk(content).data[each.position : end] == content.data[each.position : end]
            if is_stored and end <= _noted(files, name)[1]:
                found[each.batch.seq] = name, each.position, end
    return found


def _noted(files: WritebackFiles, path: str) -> tuple[int | None, int]:
    """The bytes of a file that are known to have been durable; None where not even the file is."""
    directory, _, name = path.rpartition("/")
    size = len(files.disk(files.contents[path]).data)
    segment = layout.parse_segment_name(name)
    if segment is None:
        return 0, size
    mark = read_page(MemoryFile(path, Content(files.disk(files.contents[path]).data))).mark  # a power cut may follow
    if mark is None or segment.base_seq > _acknowledged(files, directory):
        return None, 0
    return (DATA_START, mark.end_position) if mark.end_position > DATA_START else (None, 0)


def _acknowledged(files: WritebackFiles, directory: str) -> int:
    """The last batch of a log that a checkpoint covers."""
    try:
        found = snapshots.load_newest(files, f"{DATA}/order")
    except StorageError:
        return 0
    if found is None:
        return 0
    checkpoint = msgspec.msgpack.decode(found.body, type=Checkpoint)
    if directory == f"{DATA}/order":
        return layout.split(checkpoint.acked)[1]
    with files.open(f"{directory}/{min(n for n in files.listdir(directory) if n.endswith('.segment'))}") as file:
        header = read_page(file).header
    return 0 if header is None else checkpoint.places().get(header.log_id, (0, 0))[0]
