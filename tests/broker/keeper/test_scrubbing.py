"""The pace of scrubbing: what there is, in the time for it, and never faster than the limit."""

from __future__ import annotations

from penstock.broker.config import KeeperOptions
from penstock.broker.keeper.scrubbing import LEAST_S, REST_S, Scrubbing
from penstock.storage.data_directory import SCRUBBED
from penstock.storage.layout import DATA_START
from penstock.storage.memory_files import MemoryFiles
from support.logs import build, content, put

DATA = "/data"


def scene(options: KeeperOptions, shape=((40,), (40,), (1,))) -> tuple[MemoryFiles, Scrubbing, int]:
    """Files with a log, what scrubs them, and the size of the closed segments."""
    files = MemoryFiles()
    files.mkdir(f"{DATA}/order")
    built = build(files, f"{DATA}/metadata", shape=shape, value_bytes=1000)
    size = sum(len(content(files, built.segment_path(each))) for each in range(len(shape) - 1))
    return files, Scrubbing(files, DATA, options, 100.0), size


def steps(scrubbing: Scrubbing, count: int, now_s: float = 200.0) -> list[float]:
    """How long it waits after each of some steps."""
    found = []
    for _ in range(count):
        assert scrubbing.wait(now_s) == 0
        assert scrubbing.step(now_s) is None
        found.append(round(scrubbing.wait(now_s), 3))
        now_s += found[-1]
    return found


def test_logs_are_measured_first_and_read_in_the_time_for_all():
    _, scrubbing, size = scene(KeeperOptions(scrub_s=1000.0))
    assert 0 < scrubbing.wait(100.0) <= LEAST_S
    waits = steps(scrubbing, 4)
    assert waits[:2] == [LEAST_S, LEAST_S], "a log each"
    read = 40 * 1000
    for wait in waits[2:]:
        assert read < wait / 1000.0 * size < 1.2 * read


def test_the_rate_has_a_limit():
    _, scrubbing, _ = scene(KeeperOptions(scrub_s=0.001, scrub_most=80_000))
    assert all(0.5 < wait < 0.6 for wait in steps(scrubbing, 4)[2:])


def test_where_nothing_is_to_be_read_it_rests():
    for scrub_s, rest in ((7200.0, REST_S), (20.0, 20.0)):
        _, scrubbing, size = scene(KeeperOptions(scrub_s=scrub_s), shape=((1,),))
        assert size == 0
        assert steps(scrubbing, 6) == [LEAST_S, LEAST_S, rest] * 2


def test_the_next_pass_begins_when_the_last_one_ends():
    _, scrubbing, _ = scene(KeeperOptions(scrub_s=1000.0))
    first, second = steps(scrubbing, 5), steps(scrubbing, 5, 1e6)
    assert first == second


def test_what_grows_after_it_was_measured_is_read_in_about_the_time_for_all_too():
    """At the rate of the first hour, what a broker stores later would be read once in years."""
    files, scrubbing, _ = scene(KeeperOptions(scrub_s=7 * 86400.0))
    steps(scrubbing, 2)
    build(files, f"{DATA}/topics/aa/0", shape=(*((40,),) * 400, (1,)), value_bytes=1000)
    now_s, is_begun = 200.0, False
    while not is_begun or files.exists(f"{DATA}/{SCRUBBED}"):
        assert scrubbing.step(now_s) is None
        is_begun = is_begun or files.exists(f"{DATA}/{SCRUBBED}")
        now_s += scrubbing.wait(now_s)
    assert 6 < now_s / 86400.0 < 8.5


def test_what_does_not_verify_is_returned():
    files, scrubbing, _ = scene(KeeperOptions(scrub_s=1.0))
    path = f"{DATA}/metadata/" + min(name for name in files.listdir(f"{DATA}/metadata") if name.endswith(".segment"))
    data = bytearray(content(files, path))
    data[DATA_START + 9] ^= 1
    put(files, path, bytes(data))
    found = [scrubbing.step(200.0) for _ in range(4)]
    assert [each is not None for each in found] == [False, False, True, False]
    assert found[2].bad.file == path
