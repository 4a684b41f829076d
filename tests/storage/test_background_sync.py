"""A log with commit="written": what its thread has synced is durable, and recovery begins behind it."""

from __future__ import annotations

import random

from penstock.storage.embedded import Log
from penstock.storage.opening import find_end
from support.files import Disk, RecordingFiles


def test_full_segments_become_durable_behind_the_writer_and_are_marked() -> None:
    files = RecordingFiles(directories=["/log", ""])
    with Log("/log", files=files, commit="written", segment_bytes=4096) as log:
        for number in range(6):
            log.append(b"%d" % number * 3000)
            if (thread := log._background._thread) is not None:
                thread.join()
        log._background.finish()
        assert log._writer is not None
        durable = log._writer.durable
        assert durable == 4, "all that was full when the last append began"
        begun = find_end(files, "/log").begun
        assert (begun.is_marked, begun.end.seq) == (True, durable)
        disk = Disk(files)
        for operation in files.journal:
            disk.apply(operation)
    with Log("/log", files=RecordingFiles(disk.image(random.Random(0), "none"), ["/log", ""])) as log:
        assert [record.value[:1] for record in log] == [b"0", b"1", b"2", b"3"]
