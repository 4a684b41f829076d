"""Clients of Redis at the door of a real gateway, over a real broker."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

BINARY = bytes(range(256)) + b"\r\n*1\r\n$4\r\nPING\r\n"


@pytest.fixture(scope="module")
def redis() -> Any:
    return pytest.importorskip("redis", reason="needs the client redis")


# -- connections -----------------------------------------------------------------------------------------


def test_what_clients_send_when_they_connect(resp, connect, folder):
    assert resp.ping()
    assert resp.echo(BINARY) == BINARY
    assert resp.client_setname("me")
    assert resp.client_getname() in ("me", b"me")
    assert resp.client_id() in [int(each["id"]) for each in resp.client_list()]
    assert resp.client_info()["lib-name"] == "redis-py"
    assert resp.client_no_evict("ON")
    assert resp.config_get("append*") == {"appendonly": "yes"}
    assert resp.info("server")["redis_version"] == "7.0.15"
    assert connect(unix_socket_path=f"{folder}/r", db=0).ping()


def test_commands_tell_about_themselves(resp):
    assert resp.command_count() == len(resp.command())
    assert resp.command()["xadd"]["arity"] == -5
    assert any(line.startswith(b"XADD key") for line in resp.execute_command("HELP"))
    assert [line.split(b" - ")[0] for line in resp.execute_command("HELP", "ping")] == [b"PING [message]"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["NOPE", "x"], "unknown command 'NOPE'"),
        (["ECHO"], "wrong number of arguments for 'echo'"),
        (["SELECT", "1"], "one database"),
        (["SELECT", "x"], "not an integer"),
        (["HELLO", "4"], "unsupported protocol version"),
        (["CLIENT", "SETNAME", "a b"], "cannot contain spaces"),
        (["CLIENT", "KILL", "x"], "unknown subcommand"),
        (["CONFIG", "SET", "save", ""], "GET only"),
        (["AUTH", "x"], "no users"),
        (["EXEC"], "without MULTI"),
        (["DISCARD"], "without MULTI"),
        (["XADD", "k", "*", "a"], "wrong number of arguments for 'xadd'"),
        (["XADD", "k", "NOMKSTREAM", "a", "b"], "Invalid stream ID"),
        (["XADD", "k", "5-5", "a", "b"], "the id has to be *"),
        (["XADD", "k", "5-*", "a", "b"], "the id has to be *"),
        (["XADD", "k", "0-0", "a", "b"], "greater than 0-0"),
        (["XADD", "k", "*", "a", "1", "a", "2"], "there twice"),
        (["XRANGE", "k", "x", "+"], "Invalid stream ID"),
        (["XRANGE", "k", "-", "+", "LIMIT", "1"], "syntax error"),
        (["XRANGE", "k", "-", "+", "COUNT", "x"], "not an integer"),
        (["XREAD", "STREAMS", "k"], "wrong number of arguments"),
        (["XREAD", "COUNT", "1", "STREAMS", "a", "b", "0"], "Unbalanced"),
        (["XREAD", "FOO", "1", "STREAMS", "a", "0"], "syntax error"),
        (["XREAD", "BLOCK", "-1", "STREAMS", "a", "0"], "BLOCK is -1"),
        (["XINFO", "STREAM", "not-there"], "no such key"),
        (["LISTEN", "not-there", "c"], "no such key"),
        (["LISTEN", "k", "c", "x"], "not an integer"),
        (["CREATE", "k", "PARTITIONS"], "syntax error"),
        (["CREATE", "k", "COLOUR", "blue"], "'colour' is unknown"),
        (["STATS", "not-there"], "[unknown_topic]"),
        (["SCAN", "0", "FOO", "1"], "syntax error"),
        (["ENQUEUE", "x" * 201, "m"], "200 characters"),
    ],
)
def test_a_refusal_says_why(redis, resp, words, says):
    with pytest.raises(redis.ResponseError) as refused:
        resp.execute_command(*words)
    assert says in str(refused.value)


# -- streams ---------------------------------------------------------------------------------------------


def test_entries_come_back_as_they_were_added(resp, key):
    fields = {b"value": BINARY, b"key": b"\x00k", b"a": b"", "ä".encode(): BINARY}
    id_ = resp.xadd(key, fields)
    assert id_.endswith(b"-0")
    assert resp.xrange(key) == [(id_, fields)]
    assert resp.xlen(key) == 1


def test_a_record_passes_every_door(resp, native, key):
    resp.xadd(key, {"value": BINARY, "key": b"\xff", "name": b"\x00"})
    with native.producer(key) as producer:
        producer.send(BINARY, key=b"\xfe", headers={"other": b"\r\n"}, timestamp=1_000_000_000_000_000)
    read = native.read(key, 0, 0)
    assert [(record.value, record.key, dict(record.headers)) for record in read] == [
        (BINARY, b"\xff", {"name": b"\x00"}),
        (BINARY, b"\xfe", {"other": b"\r\n"}),
    ]
    first, second = resp.xrange(key)
    assert first[1] == {b"value": BINARY, b"key": b"\xff", b"name": b"\x00"}
    assert second[1] == {b"value": BINARY, b"key": b"\xfe", b"other": b"\r\n"}
    assert int(second[0].split(b"-")[0]) >= int(first[0].split(b"-")[0])  # when it was appended, not the event time
    assert resp.execute_command("LISTEN", key, "c") == [BINARY, BINARY]


@pytest.fixture
def ten(resp, key) -> list[bytes]:
    """The ids of ten entries, some of which share their milliseconds."""
    pipeline = resp.pipeline(transaction=False)
    for number in range(10):
        pipeline.xadd(key, {"n": number})
    return pipeline.execute()


def test_ranges_of_ids(resp, key, ten):
    every = [(id_, {b"n": b"%d" % number}) for number, id_ in enumerate(ten)]
    assert resp.xrange(key) == every
    assert resp.xrange(key, count=3) == every[:3]
    assert resp.execute_command("XRANGE", key, "-", "+", "COUNT", "0") == []
    assert resp.xrevrange(key) == every[::-1]
    assert resp.xrevrange(key, count=4) == every[:-5:-1]
    for at, id_ in enumerate(ten):
        assert resp.xrange(key, id_, id_) == [every[at]]
        assert resp.xrange(key, b"(" + id_) == every[at + 1 :]
        assert resp.xrange(key, max=b"(" + id_) == every[:at]
        assert resp.xrevrange(key, id_, "-") == every[: at + 1][::-1]
        time_ms = id_.split(b"-")[0]
        same = [entry for entry in every if entry[0].startswith(time_ms + b"-")]
        assert resp.xrange(key, time_ms, time_ms) == same
    last_ms = int(ten[-1].split(b"-")[0])
    assert resp.xrange(key, last_ms + 1, "+") == []
    assert resp.xrange(key, f"{last_ms}-999", "+") == []
    assert resp.xrange(key, "1-5", "2-0") == []
    assert resp.xrange(key, "1-5") == every


def test_ranges_agree_with_a_list(resp, key, ten, seed):
    randomly = random.Random(seed)
    ids = [tuple(map(int, id_.split(b"-"))) for id_ in ten]
    for _ in range(60):
        low, high = (
            (ids[randomly.randrange(10)][0] + randomly.randrange(-1, 2), randomly.randrange(12)) for _ in range(2)
        )
        count = randomly.choice([None, 1, 3])
        wanted = [ten[at] for at, id_ in enumerate(ids) if low <= id_ <= high]
        texts = [f"{time_ms}-{offset}" for time_ms, offset in (low, high)]
        assert [id_ for id_, _ in resp.xrange(key, *texts, count=count)] == wanted[:count]
        assert [id_ for id_, _ in resp.xrevrange(key, *texts[::-1], count=count)] == wanted[::-1][:count]


def entries(answer: Any) -> dict[bytes, list[bytes]]:
    """The ids of each stream in an answer to XREAD, of either version."""
    if isinstance(answer, dict):
        return {name: [id_ for id_, _ in found[0]] for name, found in answer.items()}
    return {name: [id_ for id_, _ in found] for name, found in answer or []}


def test_reading_behind_an_id(resp, key, ten):
    name = key.encode()
    assert entries(resp.xread({key: "0"})) == {name: ten}
    assert entries(resp.xread({key: "0"}, count=2)) == {name: ten[:2]}
    for at, id_ in enumerate(ten[:-1]):
        assert entries(resp.xread({key: id_})) == {name: ten[at + 1 :]}
    assert entries(resp.xread({key: ten[-1]})) == {}
    assert entries(resp.xread({key: "$"})) == {}
    assert entries(resp.xread({key: "+"})) == {name: ten[-1:]}
    assert entries(resp.xread({key: ten[-1], key + "none": "0"}, block=1)) == {}
    assert entries(resp.xread({key: ten[8], key + "none": "0"}, block=0)) == {name: ten[9:]}


@pytest.mark.parametrize("there", [True, False])
def test_a_blocked_reader_gets_what_comes(resp, connect, key, there):
    if there:
        resp.xadd(key, {"n": 0})
    found: list[Any] = []
    reader = connect()
    reader.ping()
    thread = threading.Thread(target=lambda: found.append(reader.xread({key: "$" if there else "0"}, block=30_000)))
    thread.start()
    id_ = resp.xadd(key, {"n": 1})
    while thread.is_alive() and there:  # it may have looked for the end after that entry
        resp.xadd(key, {"n": 2})
        thread.join(0.05)
    thread.join(30)
    assert [len(ids) > 0 for ids in entries(found[0]).values()] == [True]
    assert there or entries(found[0])[key.encode()][0] == id_


def test_a_key_that_comes_again_is_read_from_its_beginning(resp, key):
    old = resp.xadd(key, {"n": 0})
    resp.xadd(key, {"n": 1})
    assert resp.delete(key) == 1
    assert resp.xlen(key) == 0
    assert resp.xadd(key, {"n": 2}, nomkstream=True) is None
    new = resp.xadd(key, {"n": 3})
    assert new.endswith(b"-0")
    assert resp.xrange(key) == [(new, {b"n": b"3"})]
    assert entries(resp.xread({key: old})) == {key.encode(): [new]}


def test_deleted_entries_are_seen_by_no_client(resp, key, ten):
    resp.xgroup_create(key, "g", 0)
    assert resp.xdel(key, ten[0], ten[4], ten[5], ten[9], ten[4]) == 4
    assert resp.xdel(key, ten[0], "1-1", f"{2**63}-{2**63}") == resp.xdel(key + "none", "1-1") == 0
    left = [*ten[1:4], *ten[6:9]]
    assert [id_ for id_, _ in resp.xrange(key)] == left
    assert [id_ for id_, _ in resp.xrange(key, count=4)] == left[:4]
    assert [id_ for id_, _ in resp.xrevrange(key, count=4)] == left[::-1][:4]
    assert [id_ for id_, _ in resp.xrange(key, ten[4], ten[6])] == [ten[6]]
    assert entries(resp.xread({key: "0"}, count=5)) == {key.encode(): left[:5]}
    assert entries(resp.xread({key: ten[8]}, block=1)) == {}
    assert resp.xlen(key) == 6
    found = resp.xinfo_stream(key)
    assert (found["length"], found["first-entry"][0], found["last-entry"][0]) == (6, ten[1], ten[8])
    assert entries(resp.xreadgroup("g", "a", {key: ">"})) == {key.encode(): left}
    assert len(resp.execute_command("LISTEN", key, "c", 20)) == 6
    assert len(resp.execute_command("LISTEN", key, "c", 1, "AUTO")) == 1
    assert resp.execute_command("OFFSET", key, "c") == 2


def test_information_about_a_stream(resp, key, ten):
    found = resp.xinfo_stream(key)
    assert (found["length"], found["entries-added"], found["last-generated-id"]) == (10, 10, ten[-1])
    assert found["first-entry"][0] == ten[0]
    assert found["last-entry"] == (ten[-1], {b"n": b"9"})


def test_ten_thousand_entries_of_a_pipeline_are_in_order(resp, key):
    pipeline = resp.pipeline()  # with MULTI and EXEC
    for number in range(10_000):
        pipeline.xadd(key, {"value": b"%d" % number})
    ids = pipeline.execute()
    assert [int(id_.split(b"-")[1]) for id_ in ids] == list(range(10_000))
    assert [fields[b"value"] for _, fields in resp.xrange(key)] == [b"%d" % number for number in range(10_000)]


def test_a_read_waits_for_the_writes_before_it(resp, key):
    pipeline = resp.pipeline(transaction=False)
    for number in range(50):
        pipeline.xadd(key, {"value": number})
        pipeline.xlen(key)
    assert pipeline.execute()[1::2] == list(range(1, 51))


def test_a_transaction_answers_its_commands_in_one_array(redis, resp, key):
    pipeline = resp.pipeline()
    pipeline.xadd(key, {"n": 1})
    pipeline.execute_command("XRANGE", key, "x", "+")
    pipeline.xread({key: "$"}, block=60_000)  # does not wait inside
    pipeline.xlen(key)
    found = pipeline.execute(raise_on_error=False)
    assert isinstance(found[1], redis.ResponseError)
    assert (len(found), found[3]) == (4, 1)


def test_a_transaction_with_an_unknown_command_is_dropped(redis, resp, key):
    pipeline = resp.pipeline()
    pipeline.xadd(key, {"n": 1})
    pipeline.execute_command("NOPE")
    with pytest.raises(redis.ResponseError, match="unknown command"):
        pipeline.execute()
    assert resp.exists(key) == 0


def test_a_record_that_is_too_large_fails_alone(redis, resp, key):
    resp.execute_command("CREATE", key, "max_record_bytes", "1KB")
    pipeline = resp.pipeline(transaction=False)
    for size in (10, 2000, 20):
        pipeline.xadd(key, {"value": b"x" * size})
        pipeline.xadd(key, {"field": b"x" * size})
    found = pipeline.execute(raise_on_error=False)
    assert [isinstance(each, redis.ResponseError) for each in found] == [False, False, True, True, False, False]
    assert "max_record_bytes=1000" in str(found[2]) or "1024" in str(found[2])


# -- keys ------------------------------------------------------------------------------------------------


def test_keys_are_topics(resp, native, key):
    names = [f"{key}:user:{each}" for each in "ab"] + [f"{key}.plain"]
    for name in names:
        resp.xadd(name, {"n": 1})
    assert f"{key}.plain" in [topic.name for topic in native.topics()]
    assert sorted(resp.keys(f"{key}*")) == sorted(name.encode() for name in names)
    assert sorted(resp.scan_iter(match=f"{key}:user:[^a]")) == [names[1].encode()]
    assert list(resp.scan_iter(match=f"{key}*", _type="hash")) == []
    assert resp.exists(*names, key + "none") == 3
    assert (resp.type(names[0]), resp.type(key + "none")) == (b"stream", b"none")
    assert resp.dbsize() >= 3
    assert resp.delete(*names, names[0]) == 3
    assert resp.keys(f"{key}*") == []


def test_a_partition_of_several_is_named_by_its_number(redis, resp, native, key):
    native.create_topic(key, partitions=3)
    assert resp.xadd(f"{key}:2", {"value": "x"}).endswith(b"-0")
    assert resp.execute_command("ENQUEUE", f"{key}:2", "y") == 1
    assert [len(native.read(key, number, 0)) for number in range(3)] == [0, 0, 2]
    assert [resp.xlen(f"{key}:{number}") for number in range(3)] == [0, 0, 2]
    assert resp.exists(key, f"{key}:1") == 2
    for wrong, says in ((key, f"name it as in {key}:0"), (f"{key}:3", "3 partitions, numbered from 0")):
        with pytest.raises(redis.ResponseError, match=says):
            resp.xadd(wrong, {"value": "x"})
    with pytest.raises(redis.ResponseError, match="cannot be deleted alone"):
        resp.delete(f"{key}:1")


# -- topics and consumers ----------------------------------------------------------------------------------


def test_a_consumer_reads_where_it_stands_until_it_is_moved(redis, resp, native, key):
    do = resp.execute_command
    assert do("CREATE", key, "PARTITIONS", 1, "commit", "written") == b"OK"
    with pytest.raises(redis.ResponseError, match="topic_exists"):
        do("CREATE", key)
    assert [do("ENQUEUE", key, b"%d" % number) for number in range(15)] == list(range(15))
    assert do("OFFSET", key, "c") == 0
    assert do("LISTEN", key, "c") == do("LISTEN", key, "c") == [b"%d" % number for number in range(10)]
    assert do("CONSUMERS", key) == []
    assert do("OFFSET", key, "c", 10) == b"OK"
    assert do("LISTEN", key, "c", 3) == [b"10", b"11", b"12"]
    assert do("LISTEN", key, "c", 3, "AUTO") == [b"10", b"11", b"12"]
    assert do("LISTEN", key, "c", "AUTO") == [b"13", b"14"]
    assert (do("LISTEN", key, "c"), do("OFFSET", key, "c")) == ([], 15)
    assert do("CONSUMERS", key) == [b"c"]
    assert native.group(key, "c").partitions[0].cursor == 15
    with pytest.raises(redis.ResponseError, match="behind the end"):
        do("OFFSET", key, "c", 16)
    assert do("OFFSET", key, "c", 0) == b"OK"
    assert do("LISTEN", key, "c", 1) == [b"0"]
    assert key.encode() in do("TOPICS")
    stats = do("STATS", key)
    stats = stats if isinstance(stats, dict) else dict(zip(stats[::2], stats[1::2], strict=True))
    assert (stats[b"records"], stats[b"end"]) == (15, [15])
    assert do("DELETE", key) == b"OK"
    with pytest.raises(redis.ResponseError, match="unknown_topic"):
        do("DELETE", key)


# -- redis-cli ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("redis-cli") is None, reason="needs redis-cli: apt install redis-tools")
@pytest.mark.parametrize("version", ["-2", "-3"])
def test_redis_cli_stays_in_step(gateway, key, version):
    lines = [f"XADD {key} * value 'a b' n 1", "PING", f"XLEN {key}", "NOPE", f"ENQUEUE {key} x", "TOPICS", f"DEL {key}"]
    command = ["redis-cli", version, "-p", str(gateway.port)]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=30)
    out = [line for line in done.stdout.splitlines() if line]
    assert out[0].endswith("-0")
    assert (out[1], out[2].split()[-1], out[3].split()[:2]) == ("PONG", "1", ["ERR", "unknown"])
    assert key in out
    assert out[-1].split()[-1] == "1"


def test_a_record_that_the_broker_refuses_fails_no_command_beside_it(resp, native, key):
    native.create_topic(key)
    resp.xadd(key, {"a": b"0"})  # the gateway knows the topic now
    native.alter_topic(key, max_record_bytes=100)
    pipeline = resp.pipeline(transaction=False)
    for number in range(200):
        pipeline.xadd(key, {"a": b"%d" % number + bytes(200 if number == 77 else 0)})
    found = pipeline.execute(raise_on_error=False)
    assert [number for number, reply in enumerate(found) if isinstance(reply, Exception)] == [77]
    assert "record_too_large" in str(found[77])
    del found[77]
    assert [id_ for id_, _ in resp.xrange(key)][1:] == found


def test_a_key_that_two_clients_delete_at_once_is_deleted_by_one_of_them(connect, key):
    clients, names = [connect() for _ in range(3)], [f"{key}-{number}" for number in range(10)]
    for name in names:
        clients[0].xadd(name, {"n": 1})
    with ThreadPoolExecutor(3) as threads:
        counts = list(threads.map(lambda client: client.delete(*names), clients))
    assert sum(counts) == len(names)
