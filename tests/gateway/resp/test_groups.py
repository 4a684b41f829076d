"""Groups of consumers at the door of a real gateway, over a real broker."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from ..conftest import GatewayProcess


@pytest.fixture(scope="module")
def redis() -> Any:
    return pytest.importorskip("redis", reason="needs the client redis")


@pytest.fixture
def ten(resp, key) -> list[bytes]:
    """The ids of ten entries of a stream with the group `g`."""
    pipeline = resp.pipeline(transaction=False)
    for number in range(10):
        pipeline.xadd(key, {"n": number})
    ids = pipeline.execute()
    resp.xgroup_create(key, "g", 0)
    return ids


def ids(answer: Any) -> list[bytes]:
    """The ids of all streams in an answer to XREADGROUP, of either version."""
    if isinstance(answer, dict):
        return [id_ for found in answer.values() for id_, _ in found[0]]
    return [id_ for _, found in answer or [] for id_, _ in found]


def get(resp: Any, consumer: str, *keys: str, group: str = "g", **how: Any) -> list[bytes]:
    """The ids of what a consumer gets."""
    return ids(resp.xreadgroup(group, consumer, dict.fromkeys(keys, ">"), **how))


def test_each_entry_goes_to_one_consumer_in_order(resp, key, ten):
    assert get(resp, "a", key, count=3) == ten[:3]
    assert get(resp, "b", key, count=3) == ten[3:6]
    assert get(resp, "a", key) == ten[6:]
    assert get(resp, "a", key) == []
    assert get(resp, "a", key, block=1) == []
    resp.xgroup_create(key, "other", 0)
    assert get(resp, "a", key, group="other") == ten


def test_an_answer_has_the_fields_and_the_name_of_the_stream(resp, key):
    id_ = resp.xadd(key, {"value": b"\x00\r\n", "key": "k", "h": b"\xff"})
    plain = resp.xadd(key, {"value": "v"})
    resp.xgroup_create(key, "g", 0)
    found = resp.xreadgroup("g", "a", {key: ">"})
    entries = found[key.encode()][0] if isinstance(found, dict) else found[0][1]
    assert entries == [(id_, {b"value": b"\x00\r\n", b"key": b"k", b"h": b"\xff"}), (plain, {b"value": b"v"})]


def test_entries_that_need_no_acknowledgement_are_done_when_they_are_delivered(resp, native, key, ten):
    assert get(resp, "a", key, count=4, noack=True) == ten[:4]
    assert get(resp, "a", key, count=1) == ten[4:5]
    assert resp.xpending(key, "g")["pending"] == 1
    assert resp.xack(key, "g", *ten[:4]) == 0
    assert get(resp, "b", key, noack=True, block=1) == ten[5:]
    assert native.queue(key, "g").depth == 1


def test_what_was_acknowledged_is_counted_once(resp, native, key, ten):
    get(resp, "a", key, count=4)
    assert native.queue(key, "g").in_flight == 4
    assert resp.xack(key, "g", ten[0], ten[0], ten[2]) == 2
    assert resp.xack(key, "g", ten[0], ten[1], ten[9]) == 1
    time_ms, offset = map(int, ten[3].split(b"-"))
    assert resp.xack(key, "g", f"{time_ms + 1}-{offset}", "0-0", f"{time_ms}-{2**64 - 1}", f"{time_ms}-999") == 0
    assert [task.offset for task in native.pending(key, "g")] == [3]
    assert resp.xack(key, "g", ten[3]) == 1
    assert resp.xack(key, "not-there", ten[3]) == resp.xack(key + "none", "g", ten[3]) == 0


def test_another_gateway_acknowledges_as_well(redis, broker, resp, key, ten):
    get(resp, "a", key)
    other = GatewayProcess(broker.url)
    try:
        with redis.Redis(port=other.port) as client:
            time_ms, offset = map(int, ten[1].split(b"-"))
            assert client.xack(key, "g", f"{time_ms - 1}-{offset}") == 0
            assert client.xack(key, "g", *ten) == 10
    finally:
        assert other.stop() == 0


def test_where_a_group_begins(redis, resp, key):
    with pytest.raises(redis.ResponseError, match="requires the key to exist"):
        resp.xgroup_create(key, "g", 0)
    assert resp.xgroup_create(key, "g", 0, mkstream=True)
    assert resp.xlen(key) == 0
    first = resp.xadd(key, {"n": 1})
    resp.xgroup_create(key, "end", "$")
    second = resp.xadd(key, {"n": 2})
    assert get(resp, "a", key) == [first, second]
    assert get(resp, "a", key, group="end") == [second]
    for name in ("g", "end"):
        with pytest.raises(redis.ResponseError, match="already exists"):
            resp.xgroup_create(key, name, 0)
    assert resp.xgroup_destroy(key, "g") == 1
    assert resp.xgroup_destroy(key, "g") == 0
    assert resp.xgroup_create(key, "g", 0)
    assert get(resp, "a", key) == [first, second]


def test_a_group_that_is_not_there_is_not_made(redis, resp, key, ten):
    resp.xgroup_destroy(key, "g")
    for keys in ([key], [key, key + "none"], [key + "none"]):
        for block in (None, 1):
            with pytest.raises(redis.ResponseError, match=r"No such key .* or consumer group 'g'"):
                get(resp, "a", *keys, block=block)
    assert resp.xinfo_groups(key) == []


def test_what_the_groups_of_a_stream_have_had(resp, key, ten):
    names = {"name": b"g", "consumers": 0, "pending": 0}
    assert resp.xinfo_groups(key) == [{**names, "last-delivered-id": b"0-0", "entries-read": None, "lag": 10}]
    get(resp, "a", key, count=3)
    get(resp, "b", key, count=1)
    resp.xack(key, "g", ten[0])
    had = {"name": b"g", "consumers": 2, "pending": 3}
    assert resp.xinfo_groups(key) == [{**had, "last-delivered-id": ten[3], "entries-read": 4, "lag": 6}]
    assert resp.xinfo_stream(key)["groups"] == 1


def facts(found: Any) -> dict[bytes, Any]:
    """A map of an answer, of either version."""
    return found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))


def test_what_each_consumer_has(redis, resp, key, ten):
    assert resp.xinfo_consumers(key, "g") == []
    before = time.monotonic()
    get(resp, "a", key, count=3)
    get(resp, "b", key, count=1)
    resp.xack(key, "g", ten[0])
    found = resp.xinfo_consumers(key, "g")
    assert [(each["name"], each["pending"]) for each in found] == [(b"a", 2), (b"b", 1)]
    longest_ms = (time.monotonic() - before) * 1000 + 1000
    assert all(0 <= each["idle"] == each["inactive"] < longest_ms for each in found)
    resp.xack(key, "g", *ten)
    assert resp.xgroup_createconsumer(key, "g", "c") == 1
    found = resp.xinfo_consumers(key, "g")
    assert [(each["name"], each["pending"]) for each in found] == [(b"a", 0), (b"b", 0), (b"c", 0)]
    assert (found[2]["inactive"], 0 <= found[2]["idle"] < 60_000) == (-1, True)
    assert resp.xinfo_groups(key)[0]["consumers"] == 3
    with pytest.raises(redis.ResponseError, match="No such key"):
        resp.xinfo_consumers(key, "none")


def test_consumers_that_got_nothing_are_there(redis, resp, connect, key):
    resp.xgroup_create(key, "g", 0, mkstream=True)
    assert get(resp, "a", key) == []
    assert resp.xreadgroup("g", "b", {key: "0"})
    blocked = Blocked(connect, key, consumer="c")
    while resp.xinfo_groups(key)[0]["consumers"] < 3:
        blocked.thread.join(0.01)
    found = resp.xinfo_consumers(key, "g")
    assert [(each["name"], each["pending"], each["inactive"]) for each in found] == [
        (b"a", 0, -1), (b"b", 0, -1), (b"c", 0, -1),
    ]  # fmt: skip
    id_ = resp.xadd(key, {"n": 1})
    assert blocked.result() == [id_]
    resp.xadd(key, {"n": 2})
    assert len(get(resp, "d", key, noack=True)) == 1
    assert [(each["name"], each["pending"]) for each in resp.xinfo_consumers(key, "g")] == [
        (b"a", 0), (b"b", 0), (b"c", 1), (b"d", 0),
    ]  # fmt: skip
    for what in ("xgroup_createconsumer", "xgroup_delconsumer"):
        with pytest.raises(redis.ResponseError, match="No such key"):
            getattr(resp, what)(key, "none", "a")
        with pytest.raises(redis.ResponseError, match="requires the key to exist"):
            getattr(resp, what)(key + "none", "g", "a")


def test_everything_about_a_stream(redis, resp, key, ten):
    get(resp, "a", key, count=3)
    found = facts(resp.execute_command("XINFO", "STREAM", key, "FULL", "COUNT", "2"))
    assert (found[b"length"], [each[0] for each in found[b"entries"]]) == (10, ten[:2])
    (group,) = map(facts, found[b"groups"])
    assert (group[b"name"], group[b"last-delivered-id"], group[b"pel-count"], group[b"lag"]) == (b"g", ten[2], 3, 7)
    assert [entry[:2] + entry[3:] for entry in group[b"pel"]] == [[id_, b"a", 1] for id_ in ten[:2]]
    (consumer,) = map(facts, group[b"consumers"])
    assert (consumer[b"name"], consumer[b"pel-count"]) == (b"a", 3)
    assert [entry[0] for entry in consumer[b"pel"]] == ten[:2]
    assert consumer[b"seen-time"] == consumer[b"active-time"] == consumer[b"pel"][0][1]
    resp.xgroup_createconsumer(key, "g", "b")

    def second() -> dict[bytes, Any]:
        (group,) = map(facts, facts(resp.execute_command("XINFO", "STREAM", key, "FULL"))[b"groups"])
        return facts(group[b"consumers"][1])

    made = active = second()
    assert (made[b"name"], made[b"pel-count"], made[b"pel"], made[b"active-time"]) == (b"b", 0, [], -1)
    assert made[b"seen-time"] >= consumer[b"seen-time"]
    while active[b"active-time"] <= made[b"seen-time"]:
        resp.xclaim(key, "g", "b", 0, ten[:1])
        active = second()
    assert active[b"seen-time"] == active[b"active-time"]
    assert len(facts(resp.execute_command("XINFO", "STREAM", key, "FULL"))[b"entries"]) == 10
    for wrong in (["FOO"], ["FULL", "COUNT"], ["FULL", "FOO", "1"]):
        with pytest.raises(redis.ResponseError, match="syntax error"):
            resp.execute_command("XINFO", "STREAM", key, *wrong)


def test_names_may_be_any_text(resp, native, key):
    resp.xgroup_create(f"{key}:x", "my group:1", 0, mkstream=True)
    id_ = resp.xadd(f"{key}:x", {"n": 1})
    assert get(resp, "käufer 1", f"{key}:x", group="my group:1") == [id_]
    assert [group["name"] for group in resp.xinfo_groups(f"{key}:x")] == [b"my group:1"]
    assert resp.xack(f"{key}:x", "my group:1", id_) == 1


def test_a_topic_that_was_made_again_has_no_group_and_takes_no_old_ids(redis, resp, key, ten):
    get(resp, "a", key)
    resp.delete(key)
    again = [resp.xadd(key, {"n": 1}), resp.xadd(key, {"n": 2})]
    with pytest.raises(redis.ResponseError, match="No such key"):
        get(resp, "a", key)
    resp.xgroup_create(key, "g", 0)
    assert get(resp, "a", key) == again
    assert resp.xack(key, "g", *ten) == 0
    assert resp.xack(key, "g", *again) == 2


def test_partitions_of_a_topic_share_a_group(resp, native, key):
    native.create_topic(key, partitions=2)
    with native.producer(key) as producer:
        for number in range(4):
            producer.send(b"%d" % number, partition=number % 2)
    resp.xgroup_create(f"{key}:1", "g", 0)
    assert len(get(resp, "a", f"{key}:1")) == 2
    found = get(resp, "a", f"{key}:0")
    assert len(found) == 2
    assert resp.xack(f"{key}:0", "g", *found) == 2
    assert native.queue(key, "g").in_flight == 2


# -- what consumers have -----------------------------------------------------------------------------------


def test_what_consumers_have_in_numbers(redis, resp, key, ten):
    assert resp.xpending(key, "g") == {"pending": 0, "min": None, "max": None, "consumers": []}
    get(resp, "a", key, count=2)
    get(resp, "b", key, count=4)
    resp.xack(key, "g", ten[0])
    each = [{"name": b"a", "pending": 1}, {"name": b"b", "pending": 4}]
    assert resp.xpending(key, "g") == {"pending": 5, "min": ten[1], "max": ten[5], "consumers": each}
    for wrong in ((key, "none"), (key + "none", "g")):
        with pytest.raises(redis.ResponseError, match="No such key"):
            resp.xpending(*wrong)


def test_what_consumers_have_in_a_list(resp, key, ten):
    get(resp, "a", key, count=2)
    get(resp, "b", key, count=4)

    def listed(lowest: Any = "-", highest: Any = "+", count: int = 100, **how: Any) -> list[bytes]:
        return [each["message_id"] for each in resp.xpending_range(key, "g", lowest, highest, count, **how)]

    assert listed() == ten[:6]
    assert listed(count=3) == ten[:3]
    assert listed(count=0) == []
    assert listed(consumername="b") == ten[2:6]
    assert listed(consumername="none") == []
    assert listed(ten[1], ten[4]) == ten[1:5]
    assert listed(b"(" + ten[1], b"(" + ten[4]) == ten[2:4]
    assert listed(ten[4], ten[1]) == listed("+", "-") == listed(ten[6]) == []
    assert listed(idle=3_600_000) == []
    (one,) = resp.xpending_range(key, "g", ten[0], ten[0], 1)
    assert (one["consumer"], one["times_delivered"]) == (b"a", 1)
    assert 0 <= one["time_since_delivered"] < 60_000


def test_a_group_goes_on_behind_an_id(redis, resp, key, ten):
    resp.xgroup_create(key, "other", ten[3])
    assert get(resp, "a", key, group="other") == ten[4:]
    assert get(resp, "a", key, count=5) == ten[:5]
    assert resp.xgroup_setid(key, "g", ten[7])
    assert get(resp, "a", key) == ten[8:]
    assert resp.xgroup_setid(key, "g", 0)
    assert get(resp, "a", key) == ten[5:8]  # others are pending
    assert resp.xgroup_setid(key, "g", "$")
    assert get(resp, "a", key) == []
    assert resp.xgroup_setid(key, "other", ten[1], entries_read=7)
    found = {group["name"]: group for group in resp.xinfo_groups(key)}[b"other"]
    assert found["entries-read"] == 7
    for wrong in ((key, "none"), (key + "none", "g")):
        with pytest.raises(redis.ResponseError):
            resp.xgroup_setid(*wrong, 0)


# -- entries that change hands ------------------------------------------------------------------------------


def test_a_consumer_reads_again_what_it_has(resp, key, ten):
    get(resp, "a", key, count=3)
    get(resp, "b", key, count=2)
    resp.xack(key, "g", ten[1])
    assert ids(resp.xreadgroup("g", "a", {key: "0"})) == [ten[0], ten[2]]
    assert ids(resp.xreadgroup("g", "a", {key: "0"}, count=1)) == [ten[0]]
    assert ids(resp.xreadgroup("g", "a", {key: ten[0]}, block=60_000)) == [ten[2]]
    assert ids(resp.xreadgroup("g", "c", {key: "0"})) == []
    times = [each["times_delivered"] for each in resp.xpending_range(key, "g", "-", "+", 9)]
    assert times == [3, 3, 1, 1]
    assert resp.xack(key, "g", *ten) == 4


def test_entries_of_a_consumer_that_died_go_to_another(redis, resp, key, ten):
    get(resp, "a", key, count=4)
    assert [id_ for id_, _ in resp.xclaim(key, "g", "b", 0, [ten[1], ten[3], ten[9]])] == [ten[1], ten[3]]
    assert resp.xclaim(key, "g", "b", 3_600_000, [ten[0]]) == []
    assert resp.xclaim(key, "g", "c", 0, [ten[3]], justid=True, idle=5_000_000) == [ten[3]]
    listed = {each["message_id"]: each for each in resp.xpending_range(key, "g", "-", "+", 9)}
    assert [listed[id_]["consumer"] for id_ in ten[:4]] == [b"a", b"b", b"a", b"c"]
    assert [listed[id_]["times_delivered"] for id_ in ten[:4]] == [1, 2, 1, 2]
    assert listed[ten[3]]["time_since_delivered"] >= 5_000_000
    assert [id_ for id_, _ in resp.xclaim(key, "g", "b", 0, [ten[9]], force=True, retrycount=7)] == [ten[9]]
    assert resp.xpending_range(key, "g", ten[9], ten[9], 1)[0]["times_delivered"] == 7
    for call in (resp.xclaim, resp.xautoclaim):
        with pytest.raises(redis.ResponseError, match="No such key"):
            call(key, "none", "b", 0, [ten[0]] if call == resp.xclaim else "0")


def test_all_idle_entries_go_to_another_page_by_page(resp, key):
    pipeline = resp.pipeline(transaction=False)
    for number in range(250):
        pipeline.xadd(key, {"n": number})
    every = pipeline.execute()
    resp.xgroup_create(key, "g", 0)
    get(resp, "a", key)
    found, following = list[bytes](), b"0-0"
    while following != b"0-0" or not found:
        following, some, _ = resp.xautoclaim(key, "g", "b", 0, following, count=120)
        found += [id_ for id_, _ in some]
    assert found == every
    assert resp.xautoclaim(key, "g", "c", 0, every[100], count=150, justid=True) == every[100:]
    assert resp.xautoclaim(key, "g", "c", 3_600_000) == [b"0-0", [], []]
    each = [{"name": b"b", "pending": 100}, {"name": b"c", "pending": 150}]
    assert resp.xpending(key, "g")["consumers"] == each


def test_a_consumer_that_is_deleted_has_nothing_any_more(redis, resp, native, key, ten):
    assert resp.xgroup_createconsumer(key, "g", "a") == 1
    get(resp, "a", key, count=3)
    assert resp.xgroup_createconsumer(key, "g", "a") == 0
    get(resp, "b", key, count=1)
    assert resp.xgroup_delconsumer(key, "g", "c") == 0
    assert resp.xgroup_delconsumer(key, "g", "a") == 3
    assert [each["name"] for each in resp.xinfo_consumers(key, "g")] == [b"b"]
    assert resp.xpending(key, "g")["pending"] == 1
    assert resp.xgroup_delconsumer(key, "g", "b") == 1
    assert resp.xgroup_createconsumer(key, "g", "a") == 1
    assert resp.xgroup_delconsumer(key, "g", "a") == 0
    assert resp.xinfo_consumers(key, "g") == []
    assert resp.xpending(key, "g")["pending"] == 0
    assert native.queue(key, "g").depth == 6
    with pytest.raises(redis.ResponseError, match="No such key"):
        resp.xgroup_delconsumer(key, "none", "a")


# -- waiting -----------------------------------------------------------------------------------------------


class Blocked:
    """A consumer that waits in a thread."""

    def __init__(self, connect: Any, *keys: str, consumer: str = "b", block: int = 30_000) -> None:
        client = connect()
        client.ping()
        self.found: list[list[bytes]] = []
        self.thread = threading.Thread(
            target=lambda: self.found.append(get(client, consumer, *keys, block=block)), daemon=True
        )
        self.thread.start()

    def result(self) -> list[bytes]:
        self.thread.join(30)
        return self.found[0]


@pytest.mark.parametrize("block", [0, 30_000])
def test_a_blocked_consumer_gets_what_comes(resp, connect, key, block):
    keys = [f"{key}.{each}" for each in "xyz"]
    for name in keys:
        resp.xgroup_create(name, "g", 0, mkstream=True)
    blocked = Blocked(connect, *keys, block=block)
    id_ = resp.xadd(keys[1], {"n": 1})
    assert blocked.result() == [id_]
    assert get(resp, "a", *keys) == []


def test_of_several_streams_all_that_have_some_are_answered(resp, key):
    keys = [f"{key}.{each}" for each in "xyz"]
    for name in keys:
        resp.xgroup_create(name, "g", 0, mkstream=True)
    added = [resp.xadd(name, {"n": 1}) for name in keys if not name.endswith("y")]
    assert sorted(get(resp, "a", *keys, count=5)) == sorted(added)
    added = [resp.xadd(name, {"n": 2}) for name in keys]
    got = get(resp, "a", *keys, count=5, block=30_000)
    while len(got) < 3:  # the first answer recalls the requests to the others
        got += get(resp, "a", *keys, count=5, block=30_000)
    assert sorted(got) == sorted(added)


def test_each_entry_goes_to_one_of_many_blocked_consumers(resp, connect, key):
    resp.xgroup_create(key, "g", 0, mkstream=True)
    blocked = [Blocked(connect, key, consumer=f"c{number}") for number in range(8)]
    added = [resp.xadd(key, {"n": number}) for number in range(8)]
    for each in blocked:
        while each.thread.is_alive():  # one may have got several
            added.append(resp.xadd(key, {"n": 9}))
            each.thread.join(0.05)
    got = [id_ for each in blocked for id_ in each.result()]
    assert sorted([*got, *get(resp, "a", key)], key=lambda id_: int(id_.split(b"-")[1])) == added


def test_a_blocked_consumer_that_left_takes_nothing(gateway, resp, key):
    keys = [f"{key}.x", f"{key}.y"]
    for name in keys:
        resp.xgroup_create(name, "g", 0, mkstream=True)
    before = int(resp.info()["connected_clients"])
    for named in (keys, keys[:1]):
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=30) as each:
            words = " ".join([*named, *(">" for _ in named)])
            each.sendall(f"PING\r\nXREADGROUP GROUP g left BLOCK 0 STREAMS {words}\r\n".encode())
            assert each.recv(100) == b"+PONG\r\n"
        while int(resp.info()["connected_clients"]) > before:
            resp.ping()
    added = [resp.xadd(name, {"n": 1}) for name in keys]
    assert get(resp, "a", *keys) == added


def test_a_deleted_stream_ends_the_wait(redis, resp, connect, key):
    resp.xgroup_create(key, "g", 0, mkstream=True)
    client, found = connect(), list[str]()

    def wait() -> None:
        try:
            get(client, "a", key, block=30_000)
        except redis.ResponseError as error:
            found.append(str(error))

    thread = threading.Thread(target=wait)
    client.ping()
    thread.start()
    resp.delete(key)
    thread.join(30)
    assert "No such key" in found[0]


def test_a_transaction_does_not_wait(resp, key):
    resp.xgroup_create(key, "g", 0, mkstream=True)
    pipeline = resp.pipeline()
    pipeline.xreadgroup("g", "a", {key: ">"}, block=60_000)
    pipeline.xlen(key)
    assert pipeline.execute()[1] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["XGROUP", "NOPE", "k", "g"], "unknown subcommand"),
        (["XGROUP", "CREATE", "k", "g"], "wrong number of arguments"),
        (["XGROUP", "CREATE", "k", "g", "x"], "Invalid stream ID"),
        (["XGROUP", "CREATE", "k", "g", "0", "FOO"], "syntax error"),
        (["XGROUP", "DESTROY", "not-there", "g"], "requires the key to exist"),
        (["XREADGROUP", "NO", "g", "c", "STREAMS", "k", ">"], "Missing GROUP"),
        (["XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">", "l"], "Unbalanced"),
        (["XREADGROUP", "GROUP", "g", "c", "FOO", "1", "STREAMS", "k", ">"], "syntax error"),
        (["XREADGROUP", "GROUP", "g", "c", "BLOCK", "-1", "STREAMS", "k", ">"], "BLOCK is -1"),
        (["XREADGROUP", "GROUP", "g", "c", "COUNT", "x", "STREAMS", "k", ">"], "not an integer"),
        (["XREADGROUP", "GROUP", "g", b"\xff", "STREAMS", "k", ">"], "has to be UTF-8"),
        (["XACK", "k", "g", "x"], "Invalid stream ID"),
        (["XPENDING", "not-there", "g", "-", "+"], "No such key"),
        (["XINFO", "GROUPS", "not-there"], "no such key"),
        (["XINFO", "NOPE", "k"], "XINFO STREAM key"),
    ],
)
def test_a_refusal_says_why(redis, resp, words, says):
    with pytest.raises(redis.ResponseError) as refused:
        resp.execute_command(*words)
    assert says in str(refused.value)
