"""Channels: a queue of several processes, of which any may be killed at any moment."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from penstock import Channel
from penstock.storage import rolling_logs
from penstock.storage.errors import Closed, InvalidArgument
from penstock.storage.files import Files

PATIENCE_S = 60.0

CODE = """
import sys, penstock
with penstock.Channel(sys.argv[1], int(sys.argv[2])) as channel:
    print("ready", flush=True)
    for line in sys.stdin:
        verb, _, item = line.strip().partition(" ")
        try:
            found = getattr(channel, verb)(*([item.encode()] if item else []))
        except Exception as error:
            found = type(error).__name__
        print(found.decode() if type(found) is bytes else found, flush=True)
"""


class Peer:
    """A process with the channel open, which does as it is told."""

    def __init__(self, path: Path, maxsize: int = 0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", CODE, str(path), str(maxsize)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.heard() == "ready"

    def say(self, verb: str, item: str = "") -> None:
        assert self._process.stdin is not None, "a pipe"
        self._process.stdin.write(f"{verb} {item}\n")
        self._process.stdin.flush()

    def heard(self) -> str:
        assert self._process.stdout is not None, "a pipe"
        return self._process.stdout.readline().strip()

    def does(self, verb: str, item: str = "") -> str:
        self.say(verb, item)
        return self.heard()

    def kill(self) -> str:
        """Kill it; returns what it had said before."""
        self._process.kill()
        found = self.heard()
        self.close()
        return found

    def close(self) -> None:
        with self._process, contextlib.suppress(BrokenPipeError):
            pass


Start = Callable[..., Peer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    peers: list[Peer] = []

    def one(maxsize: int = 0) -> Peer:
        peers.append(Peer(tmp_path / "c", maxsize))
        return peers[-1]

    yield one
    for peer in peers:
        peer.close()


def drained(path: Path) -> list[bytes]:
    """All items that come, done."""
    found = []
    with Channel(path) as channel, contextlib.suppress(queue.Empty):
        while True:
            found.append(channel.get_nowait())
            channel.task_done()
    return found


# -- as queue.Queue ----------------------------------------------------------------------------------------


@pytest.fixture(params=["queue.Queue", "Channel", "Channel, written"])
def make(request, tmp_path) -> Iterator[Callable[[int], queue.Queue[bytes]]]:
    """Both do the same."""
    made: list[Channel] = []

    def one(maxsize: int = 0) -> queue.Queue[bytes]:
        if request.param == "queue.Queue":
            return queue.Queue(maxsize)
        made.append(Channel(tmp_path / "c", maxsize, commit="written" if "written" in request.param else "durable"))
        return made[-1]  # type: ignore[return-value]

    yield one
    for each in made:
        each.close()


def test_items_come_in_their_order(make):
    channel = make(0)
    for number in range(5):
        channel.put(b"%d" % number)
    assert (channel.qsize(), channel.empty(), channel.full(), channel.maxsize) == (5, False, False, 0)
    assert [channel.get() for _ in range(5)] == [b"%d" % number for number in range(5)]
    assert (channel.qsize(), channel.empty()) == (0, True)


def test_a_full_one_refuses_and_an_empty_one_too(make):
    channel = make(2)
    with pytest.raises(queue.Empty):
        channel.get_nowait()
    with pytest.raises(queue.Empty):
        channel.get(timeout=0.01)
    channel.put_nowait(b"a")
    assert not channel.full()
    channel.put(b"b", timeout=1)
    assert channel.full()
    with pytest.raises(queue.Full):
        channel.put_nowait(b"c")
    with pytest.raises(queue.Full):
        channel.put(b"c", timeout=0.01)
    assert channel.get() == b"a"
    channel.put_nowait(b"c")
    assert channel.qsize() == 2


def test_who_waits_is_woken(make):
    channel, heard = make(1), queue.Queue()
    thread = threading.Thread(target=lambda: [heard.put(channel.get()) for _ in range(3)])
    thread.start()
    for item in (b"a", b"b", b"c"):
        channel.put(item, timeout=PATIENCE_S)
    thread.join(PATIENCE_S)
    assert [heard.get_nowait() for _ in range(3)] == [b"a", b"b", b"c"]


def test_join_waits_until_everything_is_done(make):
    channel = make(0)
    channel.join()
    channel.put(b"a")
    channel.put(b"b")
    joined = threading.Event()
    thread = threading.Thread(target=lambda: (channel.join(), joined.set()))
    thread.start()
    channel.get()
    channel.task_done()
    channel.get()
    assert not joined.is_set()
    channel.task_done()
    assert joined.wait(PATIENCE_S)
    thread.join()
    with pytest.raises(ValueError, match="called too many times"):
        channel.task_done()


# -- beyond it ----------------------------------------------------------------------------------------------


def test_only_bytes_are_items_and_a_closed_channel_says_so(tmp_path):
    with Channel(tmp_path / "c") as channel:
        with pytest.raises(InvalidArgument, match=r"must be bytes, not str; text needs \.encode"):
            channel.put("text")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match=r"not NoneType; .* a sentinel is bytes too"):
            channel.put(None)  # type: ignore[arg-type]
        channel.put(b"")
        assert channel.get() == b""
        assert repr(channel) == f"<Channel {tmp_path}/c>"
    channel.close()
    assert repr(channel).endswith(", closed>")
    for verb in (lambda: channel.put(b"v"), channel.get, channel.task_done, channel.qsize, channel.join):
        with pytest.raises(Closed):
            verb()
    with pytest.raises(InvalidArgument, match="maxsize"):
        Channel(tmp_path / "c", -1)
    with pytest.raises(InvalidArgument, match="commit"):
        Channel(tmp_path / "c", commit="sometimes")  # type: ignore[arg-type]


def test_closing_ends_a_wait(tmp_path):
    channel, raised = Channel(tmp_path / "c"), []

    def wait() -> None:
        try:
            channel.get()
        except Closed as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    channel.close()
    thread.join(PATIENCE_S)
    assert len(raised) == 1


def test_a_thread_is_done_with_nothing_that_one_before_it_took(tmp_path):
    with Channel(tmp_path / "c") as channel:
        for item in (b"A", b"B"):
            channel.put(item)

        def take(finish: bool) -> None:
            channel.get()
            if finish:
                channel.task_done()

        for finish in (False, True):
            thread = threading.Thread(target=take, args=(finish,))
            thread.start()
            thread.join()
    assert drained(tmp_path / "c") == [b"A"]


def test_a_process_that_is_stopped_while_it_puts_stops_no_other(tmp_path):
    with Channel(tmp_path / "c", maxsize=2) as channel:
        channel.put(b"1")
        with Files().try_lock(f"{channel.path}/lock") as held:
            assert not isinstance(held, bytes), "it was free"
            for wait in ({"block": False}, {"timeout": 0.01}):
                with pytest.raises(queue.Full):
                    channel.put(b"2", **wait)
            assert channel.get_nowait() == b"1"
            channel.task_done()
        channel.put_nowait(b"2")


def test_each_thread_is_done_with_what_it_took(tmp_path):
    with Channel(tmp_path / "c") as channel:
        channel.put(b"a")
        channel.put(b"b")
        assert channel.get() == b"a"
        thread = threading.Thread(target=lambda: (channel.get(), channel.task_done()))
        thread.start()
        thread.join(PATIENCE_S)
    with Channel(tmp_path / "c") as channel:
        assert channel.get_nowait() == b"a"
        thread = threading.Thread(target=channel.task_done)  # has taken none itself
        thread.start()
        thread.join(PATIENCE_S)
        channel.join()


def test_two_channels_of_one_process_share_items(tmp_path):
    with Channel(tmp_path / "c") as one, Channel(tmp_path / "c") as other:
        for item in (b"a", b"b", b"c"):
            one.put(item)
        assert (one.get(), other.get()) == (b"a", b"b")
        assert (one.qsize(), other.qsize()) == (1, 1)
        one.close()
        assert other.qsize() == 2
        assert other.get() == b"a"


def test_an_item_that_is_done_before_its_log_is_read_does_not_come(tmp_path):
    with Channel(tmp_path / "c") as watching, Channel(tmp_path / "c") as one:
        one.put(b"a")
        one.get()
        with watching._changed:
            watching._items.look()  # without its record
            one.task_done()
            watching._done.look()
            watching._items.look()
            seen = watching._items.news
            watching._items.news = lambda: iter(())  # type: ignore[method-assign]
            watching._look()
            assert watching._early
            watching._items.news = seen  # type: ignore[method-assign]
            watching._look()
        assert (watching._left, watching._early) == ({}, set())


def test_logs_are_removed_when_their_items_are_done(tmp_path, monkeypatch):
    monkeypatch.setattr(rolling_logs, "FULL_RECORDS", 10)
    with Channel(tmp_path / "c") as putting, Channel(tmp_path / "c") as taking:
        putting.put(b"stays")
        assert taking.get() == b"stays"
        taking._taken = dict.fromkeys(taking._taken, 0)  # by another thread
        for number in range(200):
            putting.put(b"%d" % number)
            assert taking.get() == b"%d" % number
            taking.task_done()
        kept = [*(tmp_path / "c/items").glob("0*"), *(tmp_path / "c/done").glob("0*")]
        assert len(list((tmp_path / "c/items").glob("0*"))) <= 4, kept
        assert len([*(tmp_path / "c/items").iterdir()]) < 10
    assert drained(tmp_path / "c") == [b"stays"]
    assert [*(tmp_path / "c/items").glob("0*"), *(tmp_path / "c/done").glob("0*")] == []


def test_a_value_that_cannot_be_read_is_given_back(tmp_path, monkeypatch):
    with Channel(tmp_path / "c") as channel:
        channel.put(b"a")
        with monkeypatch.context() as failing:
            failing.setattr(channel._items, "value", lambda place: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                channel.get()
        with Channel(tmp_path / "c") as other:
            assert other.get_nowait() == b"a"


def test_an_item_whose_end_could_not_be_stored_is_taken_still(tmp_path, monkeypatch):
    with Channel(tmp_path / "c") as channel, Channel(tmp_path / "c") as other:
        channel.put(b"a")
        channel.get()
        with monkeypatch.context() as failing:
            failing.setattr(channel._done, "writer", lambda: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                channel.task_done()
        with pytest.raises(queue.Empty):
            other.get_nowait()
        channel.task_done()
        other.join()


# -- processes ----------------------------------------------------------------------------------------------


def test_what_a_killed_process_took_comes_again_and_what_it_did_does_not(start, tmp_path):
    peer, other = start(), start()
    for item in ("a", "b", "c"):
        assert peer.does("put", item) == "None"
    assert (peer.does("get"), peer.does("get")) == ("a", "b")
    peer.does("task_done")
    assert other.does("qsize") == "1"
    assert other.does("get_nowait") == "c"
    peer.kill()
    assert other.does("qsize") == "1"
    assert other.does("get_nowait") == "b"
    assert other.does("get_nowait") == "Empty"
    other.kill()
    assert drained(tmp_path / "c") == [b"b", b"c"]


def test_a_bounded_channel_is_so_for_all_processes(start):
    first, second = start(2), start(2)
    assert (first.does("put_nowait", "a"), second.does("put_nowait", "b")) == ("None", "None")
    assert (first.does("put_nowait", "c"), second.does("put_nowait", "d")) == ("Full", "Full")
    second.say("put", "e")
    assert first.does("get") == "a"
    assert second.heard() == "None"
    assert first.does("full") == "True"


def test_join_waits_for_other_processes(start):
    first, second = start(), start()
    first.does("put", "a")
    first.say("join")
    assert second.does("get") == "a"
    assert second.does("task_done") == "None"
    assert first.heard() == "None"


def test_a_forked_child_holds_nothing_and_is_refused(tmp_path):
    channel = Channel(tmp_path / "c")
    channel.put(b"a")
    channel.get()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(writing)
            refused = 0
            for verb in (channel.get_nowait, lambda: channel.put(b"v"), channel.task_done, channel.qsize):
                try:
                    verb()
                except Closed:
                    refused += 1
            os.read(reading, 1)
        finally:
            os._exit(refused != 4)
    with Channel(tmp_path / "c") as other:
        with pytest.raises(queue.Empty):
            other.get_nowait()
        channel.close()
        assert other.get_nowait() == b"a"  # though the child lives
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    os.close(reading)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_or_done_twice_when_processes_are_killed(start, tmp_path, seed):
    """Each item whose put returned is done at the end; none is handed out once it was done, or to two at a time."""
    choose = random.Random(seed)
    peers = [start() for _ in range(3)]
    held: dict[Peer, list[str]] = {peer: [] for peer in peers}
    put: set[str] = set()
    perhaps: set[str] = set()  # under way when its process was killed
    done: set[str] = set()
    maybe_done: set[str] = set()
    for number in range(120):
        peer = choose.choice(peers)
        verb = choose.choice(["put", "put", "get_nowait", "get_nowait", "task_done", "kill"])
        if verb == "put":
            assert peer.does("put", f"{number}") == "None"
            put.add(f"{number}")
        elif verb == "get_nowait":
            item = peer.does("get_nowait")
            if item != "Empty":
                assert item in put | perhaps
                assert item not in done
                assert not any(item in items for items in held.values())
                held[peer].append(item)
        elif verb == "task_done" and held[peer]:
            assert peer.does("task_done") == "None"
            done.add(held[peer].pop(0))
        elif verb == "kill" and choose.random() < 0.3:
            peers.remove(peer)
            if held[peer] and choose.random() < 0.5:
                peer.say("task_done")
                maybe_done.add(held[peer][0])
            else:
                peer.say("put", f"{number}")
                perhaps.add(f"{number}")
            peer.kill()
            del held[peer]
            peers.append(start())
            held[peers[-1]] = []
    for peer in peers:
        peer.kill()
    left = {item.decode() for item in drained(tmp_path / "c")}
    assert left & done == set()
    assert put - done - maybe_done <= left <= (put | perhaps) - done


RUSH = """
import sys, queue, penstock
from penstock.storage import rolling_logs
rolling_logs.FULL_RECORDS = 7
for round in range(4):
    with penstock.Channel(sys.argv[1], 20) as channel:
        for number in range(15):
            try:
                channel.put(f"{sys.argv[2]}.{round}.{number}".encode(), timeout=0.01)
                print("put", f"{sys.argv[2]}.{round}.{number}")
            except queue.Full:
                pass
            try:
                item = channel.get_nowait()
                channel.task_done()
                print("done", item.decode())
            except queue.Empty:
                pass
"""


def test_logs_come_and_go_under_processes_that_use_them(tmp_path):
    command = [sys.executable, "-c", RUSH, str(tmp_path / "c")]
    rushing = [subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True) for number in range(4)]
    said = [process.communicate(timeout=PATIENCE_S)[0].split() for process in rushing]
    assert [process.returncode for process in rushing] == [0] * 4
    words = [word for each in said for word in each]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    put, done = ([item for verb, item in pairs if verb == kind] for kind in ("put", "done"))
    done += [item.decode() for item in drained(tmp_path / "c")]
    assert sorted(done) == sorted(put)
    assert len(set(done)) == len(done)


# -- locks --------------------------------------------------------------------------------------------------
