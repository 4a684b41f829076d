"""What became of a task is found with one read, however the process before ended."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from penstock.storage.errors import Corrupt
from penstock.storage.finals import (
    CHUNK,
    EVERYTHING,
    FINALS_BYTES,
    UNKNOWN_BOOT,
    Final,
    FinalFiles,
    Header,
    Outcome,
    decode_header,
    encode_header,
    final_of,
    problems,
    word,
)
from penstock.storage.log import LogWriter
from penstock.storage.memory_files import MemoryFiles
from penstock.storage.order import Sole
from penstock.storage.promises import Promises
from penstock.storage.repair import repair
from penstock.storage.verify import verify
from support.bad_sectors import BadSectors
from support.files import RecordingFiles, SyncDir

LOG, BOOT, LATER = b"l" * 16, b"b" * 16, b"c" * 16
RESULT = Final(Outcome.RESULT, 7)


def kept(files: MemoryFiles, boot: bytes = BOOT, log: bytes = LOG) -> FinalFiles:
    files.mkdir("/log")
    return FinalFiles(files, "/log", log, boot)


def words(count: int, final: Final = RESULT) -> np.ndarray:
    return np.full(count, word(final), np.int64)


@pytest.mark.parametrize("outcome", Outcome)
def test_a_word_says_how_and_where(outcome: Outcome) -> None:
    assert final_of(word(Final(outcome, 2**44 - 1))) == Final(outcome, 2**44 - 1)


@pytest.mark.parametrize("value", [0, 5, 4 << 44 | 5, -1, 2**63 - 1])
def test_a_word_of_no_known_outcome_says_nothing(value: int) -> None:
    assert final_of(value) is None


def test_any_changed_byte_of_a_header_is_seen() -> None:
    data = encode_header(Header(LOG, BOOT, 9))
    assert decode_header(data) == Header(LOG, BOOT, 9)
    for place in range(FINALS_BYTES):
        assert decode_header(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]) is None
    assert decode_header(data[:-1]) is None
    assert decode_header(bytes(FINALS_BYTES)) is None


def test_a_row_of_words_is_one_write_and_found_over_the_border_of_two_files() -> None:
    files = RecordingFiles()
    finals = kept(files)
    finals.write("g", [(CHUNK - 3, words(5))])
    found = [finals.read("g", offset) for offset in range(CHUNK - 4, CHUNK + 3)]
    assert found == [None, *[RESULT] * 5, None]
    assert finals.read("other", CHUNK) is None
    assert len([name for name in files.listdir("/log") if name.startswith("finals-")]) == 3


def test_rows_of_one_file_are_written_into_it_together() -> None:
    files = RecordingFiles()
    finals = kept(files)
    finals.write("g", [(0, words(1))])
    before = dict(files.calls)
    finals.write("g", [(offset, words(2)) for offset in range(10, 40, 3)])
    assert files.calls["write"] - before["write"] == 10
    assert files.calls.get("open", 0) - before.get("open", 0) <= 1
    assert [finals.read("g", offset) for offset in (12, 13, 14, 15)] == [None, RESULT, RESULT, None]


def test_a_later_word_of_a_record_holds() -> None:
    finals = kept(MemoryFiles())
    finals.write("g", [(4, words(1, Final(Outcome.CANCELLED, 3)))])
    finals.write("g", [(4, words(1))])
    assert finals.read("g", 4) == RESULT


def test_the_same_boot_left_everything_and_another_what_was_settled() -> None:
    files = MemoryFiles()
    finals = kept(files)
    assert finals.covered("g") == 0
    finals.write("g", [(0, words(1))])
    assert kept(files).covered("g") == EVERYTHING
    assert kept(files, LATER).covered("g") == 0
    finals.settle("g", 7)
    assert kept(files).covered("g") == EVERYTHING
    assert kept(files, LATER).covered("g") == 7


def test_a_boot_that_is_not_known_is_never_the_same() -> None:
    files = MemoryFiles()
    kept(files, UNKNOWN_BOOT).write("g", [(0, words(1))])
    assert kept(files, UNKNOWN_BOOT).covered("g") == 0


def test_nothing_of_another_log_or_behind_a_damaged_header_counts() -> None:
    files = MemoryFiles()
    kept(files).write("g", [(0, words(1))])
    assert kept(files, BOOT, b"x" * 16).covered("g") == 0
    (header,) = [name for name in files.listdir("/log") if name.count("-") == 1]
    files.open(f"/log/{header}").pwritev([b"?"], 20)
    assert kept(files).covered("g") == 0


def test_settling_syncs_the_words_of_a_process_that_was_killed_before_the_header_says_so() -> None:
    files = RecordingFiles()
    kept(files).write("g", [(0, words(1))])  # and killed
    finals = kept(files)
    assert finals.covered("g") == EVERYTHING
    finals.write("g", [(CHUNK, words(1))])
    files.fail("sync", 1, errno.EIO)
    with pytest.raises(OSError, match="EIO"):
        finals.settle("g", 7)
    assert kept(files, LATER).covered("g") == 0
    files.heal()
    finals.settle("g", 7)
    assert kept(files, LATER).covered("g") == 7


def words_file(files: MemoryFiles) -> str:
    (name,) = [name for name in files.listdir("/log") if name.count("-") == 2]
    return f"/log/{name}"


@pytest.mark.parametrize("size", [0, 1, 8, 800, 4095, 4096, 8191])
def test_a_file_of_words_that_is_cut_short_is_found_by_the_next_node(size: int) -> None:
    files = MemoryFiles()
    finals = kept(files)
    finals.write("g", [(0, words(1))])
    finals.write("g", [(700, words(1))])
    finals.settle("g", 7)
    assert len(files.contents[words_file(files)].data) == 8192
    assert (kept(files).covered("g"), kept(files, LATER).covered("g")) == (EVERYTHING, 7)
    del files.contents[words_file(files)].data[size:]
    assert (kept(files).covered("g"), kept(files, LATER).covered("g")) == (0, 0)
    again = kept(files)
    again.stand("g", 0)
    again.write("g", [(0, words(1)), (700, words(1))])
    assert [again.read("g", offset) for offset in (0, 1, 700, 701)] == [RESULT, None, RESULT, None]
    assert kept(files).covered("g") == EVERYTHING


@pytest.mark.parametrize("first", [0, CHUNK - 1])
def test_a_file_of_words_that_became_zeros_is_not_believed(first: int) -> None:
    files = MemoryFiles()
    finals = kept(files)
    finals.write("g", [(first, words(1))])
    finals.settle("g", 7)
    assert finals.read("g", 5) is None
    data = files.contents[words_file(files)].data
    assert problems(files, "/log")[0] == []
    data[:] = bytes(len(data))
    with pytest.raises(Corrupt, match=f"-{0:020d} has nothing but zeros"):
        finals.read("g", first)
    assert (kept(files).covered("g"), kept(files, LATER).covered("g")) == (0, 0)
    assert problems(files, "/log")[0] == [f"{words_file(files)} has nothing but zeros: its words are lost"]
    again = kept(files)
    again.stand("g", 0)
    again.write("g", [(first, words(1))])
    assert (kept(files).covered("g"), kept(files).read("g", first)) == (EVERYTHING, RESULT)


@pytest.mark.parametrize("dashes", [1, 2])
def test_files_that_the_disk_cannot_read_are_written_anew_elsewhere(dashes: int) -> None:
    """`dashes`: in the name of the header, or of a file of words."""
    files = BadSectors()
    finals = kept(files)
    finals.write("g", [(0, words(1)), (CHUNK, words(1))])
    finals.settle("g", 7)
    name = next(name for name in files.listdir("/log") if name.count("-") == dashes)
    files.bad.add((f"/log/{name}", 0))
    again = kept(files)
    assert again.covered("g") == 0
    assert files.refused
    assert files.listdir("/log") == []
    again.stand("g", 0)
    again.write("g", [(0, words(1))])
    assert again.read("g", 0) == RESULT
    assert kept(files).covered("g") == EVERYTHING


def test_a_header_that_the_disk_cannot_read_goes_though_no_words_stand_beside_it() -> None:
    files = BadSectors()
    kept(files).stand("g", 0)
    (name,) = files.listdir("/log")
    files.bad.add((f"/log/{name}", 0))
    assert kept(files).covered("g") == 0
    assert files.listdir("/log") == []


def test_the_first_words_of_a_group_wait_for_no_directory() -> None:
    files = RecordingFiles()
    kept(files).write("g", [(0, words(1))])
    assert not any(isinstance(each, SyncDir) for each in files.journal)


def test_files_that_cannot_be_read_for_now_stay() -> None:
    files = RecordingFiles()
    kept(files).write("g", [(0, words(1))])
    files.fail("open", 2, errno.EACCES)
    with pytest.raises(OSError, match="EACCES"):
        kept(files).covered("g")
    files.heal()
    again = kept(files)
    assert again.covered("g") == EVERYTHING
    assert again.read("g", 0) == RESULT


def test_a_log_with_lost_finals_is_whole_and_not_clean() -> None:
    files = MemoryFiles()
    LogWriter.create("/log", files=files, log_id=LOG, order=Sole(Promises("/promises", files))).close(True)
    kept(files).write("g", [(0, words(1))])
    assert verify(files, "/log").clean
    (header,) = [f"/log/{name}" for name in files.listdir("/log") if name.startswith("finals") and name.count("-") == 1]
    files.contents[header].data[30] ^= 1
    data = files.contents[words_file(files)].data
    data[:] = bytes(len(data))
    report = verify(files, "/log")
    assert (report.ok, report.clean) == (True, False)
    assert [line.partition(" ")[2] for line in report.finals] == [
        "its header does not verify",
        "has nothing but zeros: its words are lost",
    ]


def test_a_file_of_words_that_is_cut_short_under_a_node_is_neither_read_nor_written() -> None:
    files = MemoryFiles()
    finals = kept(files)
    finals.write("g", [(0, words(512))])
    del files.contents[words_file(files)].data[4095:]
    assert finals.read("g", 510) == RESULT
    with pytest.raises(Corrupt, match="cut short: it had 4096 bytes"):
        finals.read("g", 511)
    assert finals.read("g", 512) is None, "behind its end there never was a word"
    with pytest.raises(Corrupt, match="cut short"):
        finals.write("g", [(511, words(1))])


@pytest.mark.parametrize("end", [1, 511, 512, 513, 1024, 1025, CHUNK - 1, CHUNK])
def test_a_file_of_words_has_the_size_of_a_power_of_two_that_all_fit_into(end: int) -> None:
    files = MemoryFiles()
    finals = kept(files)
    finals.write("g", [(end - 1, words(1))])
    size = len(files.contents[words_file(files)].data)
    assert size == max(4096, 1 << (end * 8 - 1).bit_length())
    assert finals.read("g", end - 1) == RESULT
    assert kept(files).covered("g") == EVERYTHING


def test_a_dropped_group_leaves_no_file_and_touches_no_other() -> None:
    files = MemoryFiles()
    finals = kept(files)
    for group in ("g", "h"):
        finals.write(group, [(CHUNK, words(1))])
    finals.drop("g")
    assert (finals.read("g", CHUNK), finals.read("h", CHUNK)) == (None, RESULT)
    assert len(files.listdir("/log")) == 2
    finals.drop("g")


def test_only_files_wholly_below_the_first_offset_go() -> None:
    finals = kept(MemoryFiles())
    for offset in (0, CHUNK, 2 * CHUNK):
        finals.write("g", [(offset, words(1))])
    finals.trim("g", 2 * CHUNK - 1)
    assert [finals.read("g", offset) for offset in (0, CHUNK, 2 * CHUNK)] == [None, RESULT, RESULT]


def test_a_file_that_is_gone_is_known_from_one_that_never_was() -> None:
    files = MemoryFiles()
    finals = kept(files)
    finals.write("g", [(0, words(1)), (CHUNK, words(1)), (3 * CHUNK, words(1))])
    finals.trim("g", CHUNK)
    finals.settle("g", 7)
    assert (finals.read("g", 0), finals.read("g", 2 * CHUNK)) == (None, None)
    assert (kept(files).covered("g"), kept(files, LATER).covered("g")) == (EVERYTHING, 7)
    (name,) = [name for name in files.listdir("/log") if name.endswith(f"-{CHUNK:020d}")]
    files.unlink(f"/log/{name}")
    with pytest.raises(Corrupt, match=f"{CHUNK:020d} is gone"):
        finals.read("g", CHUNK)
    assert finals.read("g", 3 * CHUNK) == RESULT
    for boot in (BOOT, LATER):
        again = kept(files, boot)
        assert again.covered("g") == 0
        again.stand("g", 0)
        again.write("g", [(3 * CHUNK, words(1))])
        assert again.covered("g") == EVERYTHING


def test_the_tools_of_a_log_leave_finals_alone() -> None:
    files = MemoryFiles()
    log = LogWriter.create("/log", files=files, log_id=LOG, order=Sole(Promises("/promises", files)))
    kept(files).write("g", [(0, words(1))])
    log.close(True)
    before = {name: bytes(files.read(f"/log/{name}")) for name in files.listdir("/log") if name.startswith("finals")}
    assert verify(files, "/log").clean
    repair(files, "/log", now_us=0)
    assert {name: files.read(f"/log/{name}") for name in before} == before
