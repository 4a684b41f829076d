"""Requests: the strict parser, and that hiredis behind its guards finds the same."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from penstock.gateway.resp.parsing import INLINE_BYTES_MAX, CommandParser, RequestLimits, words
from penstock.gateway.resp.requests import ELEMENTS_MAX, RequestReader, SharedReaders
from penstock.gateway.resp.runs import LEAST, WORDS_MAX, Run, runs_of

hiredis = pytest.importorskip("hiredis", reason="needs the extra gateway")

LIMITS = RequestLimits(arguments=2000, command_bytes=1 << 20)
FUZZED = 200_000


def command(*arguments: bytes) -> bytes:
    return b"*%d\r\n" % len(arguments) + b"".join(b"$%d\r\n%b\r\n" % (len(each), each) for each in arguments)


def untrusted(limits: RequestLimits) -> RequestReader:
    return RequestReader(limits, SharedReaders(hiredis.Reader), hiredis.HiredisError)


def trusted(limits: RequestLimits = LIMITS) -> RequestReader:
    reader = untrusted(limits)
    reader.trust(limits)
    return reader


def flat(found: Iterable[list[bytes] | Run]) -> list[list[bytes]]:
    return [words for each in found for words in (each.commands() if isinstance(each, Run) else [each])]


def fed(parser: CommandParser | RequestReader, pieces: Iterable[bytes]) -> list[list[bytes]]:
    found = []
    for piece in pieces:
        found += flat(parser.feed(piece))
        while parser.more:
            found += flat(parser.feed(b""))
    return found


def bytewise(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


@pytest.fixture(params=["strict", "hiredis"])
def parser(request: pytest.FixtureRequest) -> CommandParser | RequestReader:
    return CommandParser(LIMITS) if request.param == "strict" else trusted()


STREAMS = [
    [[b"PING"]],
    [[b"XADD", b"key", b"*", b"value", b"\r\n*3\r\n$1\r\n\x00\xff"], [b"PING"]],
    [[b"SET", b"", b"\r\n"], [b""], [b"*99999\r\n", b"%123456"]],
    [[b"A", b"x" * 5000], [b"\r\n*1\r\n" * 50], [b"B"]],
    [[str(number).encode() for number in range(1500)], [b"C"]],
]


@pytest.mark.parametrize("commands", STREAMS, ids=range(len(STREAMS)))
def test_commands_come_out_whole_however_they_came_in(commands, parser):
    data = b"".join(command(*each) for each in commands)
    assert fed(parser, bytewise(data)) == commands
    assert fed(parser, [data, data]) == commands * 2
    assert parser.between_commands
    assert not parser.error


def test_every_cut_of_a_stream_gives_the_same_commands():
    commands = [[b"XADD", b"k", b"*", b"v", b"\r\n*2\r\n$1\r\n"], [b"*12345\r\n"], [b"PING"]]
    data = b"".join(command(*each) for each in commands)
    for first in range(len(data)):
        for second in range(first, len(data)):
            assert fed(trusted(), [data[:first], data[first:second], data[second:]]) == commands


def test_a_call_looks_at_so_many_arguments_as_it_is_told():
    parser = CommandParser(LIMITS)
    commands = [[str(number).encode() for number in range(1500)], [b"*1234\r\n"], [b"C"], [b"D"]]
    data = b"".join(map(bytes, (command(*each) for each in commands))) + b'PING "x"\r\nPING\r\n'
    found, calls = parser.feed(data, 100), 1
    while parser.more:
        assert not parser.between_commands
        some = parser.feed(b"", 100)
        found += some
        calls += 1
    assert found == [*commands, [b"PING", b"x"], [b"PING"]]
    assert calls == 16
    assert parser.between_commands


def test_what_is_left_to_be_looked_at_comes_before_what_is_fed_next():
    data = b"".join(command(b"a", str(number).encode()) for number in range(100))
    parser = CommandParser(LIMITS)
    found = parser.feed(data, 10) + parser.feed(data, 10)
    while parser.more:
        found += parser.feed(b"", 7)
    assert found == [[b"a", str(number).encode()] for number in range(100)] * 2


def test_a_large_inline_command_counts_as_many_arguments():
    parser = CommandParser(LIMITS)
    line = b"x " * 1000 + b"\n"
    assert len(parser.feed(line * 3, 100)) == 1
    assert parser.more
    assert len(parser.feed(b"", 200)) == 2
    assert not parser.more


def test_inline_commands_come_between_others(parser):
    data = b"PING\r\n" + command(b"ECHO", b"x") + b"\r\n  set 'a b' \"\\x00\\n\"\r\n" + command(b"ECHO", b"y")
    wanted = [[b"PING"], [b"ECHO", b"x"], [b"set", b"a b", b"\x00\n"], [b"ECHO", b"y"]]
    assert fed(parser, bytewise(data)) == wanted
    assert fed(parser, [data]) == wanted


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (b"", []), (b"  ", []), (b"a  b", [b"a", b"b"]), (b"'it\\'s'", [b"it's"]), (b'"a\\tb"', [b"a\tb"]),
        (b"'a\\n'", [b"a\\n"]), (b'"open', None), (b"'a'b", None), (b'a"b"', [b"ab"]), (b'"\\q"', [b"q"]),
    ],
)  # fmt: skip
def test_words_of_an_inline_command(line, wanted):
    assert words(line) == wanted


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"*100000000\r\n", "invalid multibulk length"),
        (b"*2001\r\n", "invalid multibulk length"),
        (b"*999999999999999999999\r\n", "invalid multibulk length"),
        (b"*x\r\n", "invalid multibulk length"),
        (b"*1\r\n$2147483648\r\n", "invalid bulk length"),
        (b"*1\r\n$-1\r\n", "invalid bulk length"),
        (b"*1\r\n$1048577\r\n", "invalid bulk length"),
        (b"*2\r\n$1048576\r\n" + b"x" * (1 << 20) + b"\r\n$1\r\n", "invalid bulk length"),
        (b"*1\r\n:5\r\n", "expected '$'"),
        (b"*1\r\n*1\r\n$1\r\na\r\n", "expected '$'"),
        (b"*1\r\n*100000000\r\n", "expected '$'"),
        (b"*1\r\n%99999999\r\n", "expected '$'"),
        (b"*1\r\n$" + b"1" * (INLINE_BYTES_MAX + 2), "too big inline request"),
        (b"x" * (INLINE_BYTES_MAX + 2), "too big inline request"),
        (b'"open\r\n', "unbalanced quotes"),
        (b"POST / HTTP/1.1\r\nHost: x\r\n\r\n", "not HTTP"),
        (b"GET /x HTTP/1.0\r\n", "not HTTP"),
        (b"host: x\r\n", "not HTTP"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1 << 22])
def test_what_is_no_request_is_refused_behind_the_commands_before_it(data, says, size, parser):
    stream = command(b"PING") + data + command(b"LATER")
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert fed(parser, pieces if size > 1 or len(stream) < 1000 else [stream]) == [[b"PING"]]
    assert says in parser.error


def test_nothing_larger_than_a_command_is_kept():
    reader = trusted(RequestLimits(arguments=16, command_bytes=100_000))
    assert reader.feed(command(b"PING") * 3 + b"*1\r\n$99999\r\n") == [[b"PING"]] * 3
    assert [reader.feed(b"y" * 1000) for _ in range(99)] == [[]] * 99
    assert reader.error == ""
    assert reader.feed(b"y" * 1001) == [[b"y" * 99999]]
    assert [reader.feed(b"y" * 1000) for _ in range(70)] == [[]] * 70  # a line without an end
    assert "too big inline request" in reader.error


def test_before_trust_the_limits_are_those_it_was_made_with():
    reader = untrusted(RequestLimits(arguments=3, command_bytes=10))
    assert fed(reader, [command(b"a", b"b", b"c")]) == [[b"a", b"b", b"c"]]
    reader.trust(LIMITS)
    assert fed(reader, [command(b"a", b"b", b"c", b"d" * 20)]) == [[b"a", b"b", b"c", b"d" * 20]]
    other = untrusted(RequestLimits(arguments=3, command_bytes=10))
    assert fed(other, [command(b"a", b"b", b"c", b"d")]) == []
    assert other.error


def test_connections_share_readers_while_nothing_is_incomplete():
    made = []

    def new_reader(**options: object) -> object:
        made.append(hiredis.Reader(**options))
        return made[-1]

    shared, whole = SharedReaders(new_reader), command(b"a", b"b")
    readers = [RequestReader(LIMITS, shared, hiredis.HiredisError) for _ in range(3)]
    for reader in readers:
        reader.trust(LIMITS)
        assert reader.feed(whole * 3) == [[b"a", b"b"]] * 3
    assert len(made) == 1
    assert [reader.feed(whole[:9] if reader is readers[0] else whole[:12]) for reader in readers] == [[]] * 3
    assert len(made) == 3
    rests = [whole[9:], whole[12:], whole[12:] + whole]
    assert [reader.feed(rest) for reader, rest in zip(readers, rests, strict=True)] == [
        [[b"a", b"b"]] * count for count in (1, 1, 2)
    ]
    readers[0].feed(b"*1\r\n:5\r\n")
    assert readers[0].error
    assert fed(readers[1], [whole, b"PING\r\n", whole]) == [[b"a", b"b"], [b"PING"], [b"a", b"b"]]
    assert len(made) == 3


PARTS = [
    b"*1\r\n", b"*2\r\n", b"*3\r\n", b"$1\r\n", b"$3\r\n", b"$0\r\n", b"\r\n", b"\n", b"\r", b"a", b"abc", b"*", b"$",
    b":1\r\n", b"-e\r\n", b"_\r\n", b"#f\r\n", b",1.5\r\n", b"\r\n%1\r\n", b"\r\n~2\r\n", b"*0\r\n", b"*-1\r\n",
    b"$-1\r\n", b"*2001\r\n", b"*10000000\r\n", b"\r\n>1\r\n", b"\r\n|1\r\n", b"\x00", b" ", b'"', b"'",
    b"PING\r\n", b"*1\r\n$4\r\nPING\r\n", b"*2\r\n$1\r\na\r\n$2\r\nbc\r\n", b"9", b"0", b"-", b"ECHO x\r\n",
]  # fmt: skip


def made_up(randomly: random.Random) -> bytes:
    """A stream of commands with parts put in, taken out, or moved."""
    parts = randomly.choices(PARTS, k=randomly.randrange(1, 9))
    if randomly.random() < 0.5:
        whole = command(*randomly.choices([b"", b"a", b"PING", b"*1\r\n", b"\r\n*3\r\n"], k=randomly.randrange(1, 4)))
        at = randomly.randrange(len(whole))
        parts.insert(0, whole if randomly.random() < 0.5 else whole[:at] + whole[at + 1 :])
    return b"".join(parts)


@pytest.mark.parametrize("count", [999, 1000, 1001, 2000])
def test_many_arguments_go_through_hiredis_however_they_are_cut(count, seed):
    whole = command(*[b"%d" % number for number in range(count)])
    stream = whole * 3 + command(b"PING")
    wanted = fed(CommandParser(LIMITS), [stream])
    assert len(wanted) == 4
    randomly = random.Random(seed)
    for _ in range(50):
        cuts = [0, *sorted(randomly.sample(range(len(stream)), 3)), len(stream)]
        reader = trusted()
        assert fed(reader, [stream[start:end] for start, end in pairwise(cuts)]) == wanted
        assert reader.fast


def test_arrays_that_announce_too_much_before_a_command_is_complete_go_to_the_strict_parser():
    reader = trusted(RequestLimits(arguments=1 << 16, command_bytes=1 << 20))
    announced = 0
    while not reader.error:
        assert reader.feed(b"*60000\r\n" + b"$1\r\na\r\n" * 5) == []
        announced += 60000
    assert 1 << 16 < announced < ELEMENTS_MAX + 2 * 60000
    assert "expected '$'" in reader.error


def test_commands_with_many_arguments_do_not_add_up():
    reader, one = trusted(RequestLimits(arguments=1 << 16, command_bytes=1 << 20)), command(*[b"a"] * 60000)
    for _ in range(3 * ELEMENTS_MAX // 60000):
        assert len(reader.feed(one)) == 1
        assert reader.fast


def test_a_nested_array_of_many_is_refused_when_it_is_complete():
    reader = trusted()
    assert reader.feed(b"*1001\r\n*1\r\n") == []
    assert reader.feed(command(b"PING") * 1001) == []
    assert "expected '$'" in reader.error


def test_the_id_of_new_entries_goes_through_hiredis():
    reader, words = trusted(), [b"XREADGROUP", b"GROUP", b"g", b"c", b"STREAMS", b"a", b"b", b">", b">"]
    for _ in range(3):
        assert reader.feed(command(*words)) == [words]
        assert reader.fast


def test_what_hiredis_returns_as_bytes_passes_for_a_bulk_string():
    assert fed(trusted(), [b"*2\r\n+PING\r\n(1\r\n"]) == [[b"PING", b"1"]]


def test_whatever_comes_in_both_parsers_find_the_same(seed):
    """hiredis may wait where an inline command begins like a type of RESP3, until what follows shows the difference."""
    randomly, following = random.Random(seed), command(b"PING") * 12
    for _ in range(FUZZED):
        data = made_up(randomly)
        cut = randomly.randrange(len(data) + 1)
        strict, fast = CommandParser(LIMITS), trusted()
        wanted = strict.feed(data)
        found = fed(fast, [data[:cut], data[cut:]])
        assert found == wanted[: len(found)], (data, cut)
        if found != wanted or fast.error != strict.error:
            assert found + flat(fast.feed(following)) == wanted + strict.feed(following), (data, cut)
            assert fast.error == strict.error, (data, cut)


# -- runs --------------------------------------------------------------------------------------------------

HEADS = [[b"XADD", b"k", b"*", b"v"], [b"XADD", b"key", b"*", b"v"], [b"ENQUEUE", b"k"], [b"SET", b""]]


def alike(randomly: random.Random) -> bytes:
    """Some runs, of values that look like parts of commands, and of one length or not."""
    found = b""
    for _ in range(randomly.randrange(1, 4)):
        head, size = randomly.choice(HEADS), randomly.choice([1, LEAST - 1, LEAST, 20])
        begun = command(*head, b"")[:-5]
        kinds = [
            [b"x" * 12, b"y" * 12, b"\r\n" * 6], [b"", b"a", b"abc", b"0"],
            [b"a", b"1\r\na\r\n" + begun + b"1\r\nb", b"\r\n" + begun, begun + b"9\r\n"],
        ]  # fmt: skip
        found += b"".join(command(*head, value) for value in randomly.choices(randomly.choice(kinds), k=size))
    return found


def damaged(data: bytes, randomly: random.Random) -> bytes:
    at = randomly.randrange(len(data))
    kind = randomly.choice(["as it is", "as it is", "less", "more", "other"])
    other = b"\r\n0$*a"[randomly.randrange(6) :][:1]
    middle = {"as it is": data[at : at + 1], "less": b""}.get(kind, other)
    return data[:at] + middle + data[at if kind == "more" else at + 1 :]


def test_in_runs_both_parsers_find_the_same_whatever_the_values_are(seed):
    randomly, following = random.Random(seed), command(b"PING") * 200
    runs = 0
    for _ in range(FUZZED // 20):
        data = damaged(alike(randomly), randomly)
        cut = randomly.choice([0, randomly.randrange(len(data) + 1)])
        strict, fast = CommandParser(LIMITS), trusted()
        wanted = fed(strict, [data])
        found = fed(fast, [data[:cut], data[cut:]])
        assert found == wanted[: len(found)], (data, cut)
        if found != wanted or fast.error != strict.error:
            assert found + fed(fast, [following]) == wanted + fed(strict, [following]), (data, cut)
            assert fast.error == strict.error, (data, cut)
        runs += bool(runs_of(data)[0])
    assert FUZZED // 200 < runs < FUZZED // 20


@pytest.mark.parametrize("values", [[b"x" * 30] * 50, [b"x" * size for size in range(50)]], ids=["even", "uneven"])
def test_commands_that_differ_in_their_last_word_come_as_a_run(values):
    head = [b"XADD", b"k", b"*", b"v"]
    each = [command(*head, value) for value in values]
    data = b"".join(each)
    assert [(run.head, list(run.columns[0]), run.count) for run in runs_of(data)[0]] == [(head, values, 50)]
    assert runs_of(data)[1] == len(data)
    for cut in range(1, len(each[-1])):
        ((run,), end) = runs_of(data[:-cut])
        assert run.count in (48, 49)
        assert (list(run.columns[0]), data[:end]) == (values[: run.count], b"".join(each[: run.count]))
    assert runs_of(command(b"PING") + data) == ([], 0)
    ((run,), end) = runs_of(data + command(b"PING"))
    assert (run.count, data[:end]) in [(count, b"".join(each[:count])) for count in (49, 50)]
    runs, end = runs_of(data + data.replace(b"\nk\r", b"\no\r"))
    assert [run.head[1] for run in runs] == [b"k", b"o"][: len(runs)]
    assert end >= len(data) - len(each[-1])


def test_runs_that_are_a_small_part_of_what_came_are_left_to_the_parsers():
    """Looking for each of many would take the square of the time."""
    some = [command(b"ENQUEUE", key, b"x") * 10 for key in (b"a", b"b")]
    assert [run.head[1] for run in runs_of(b"".join(some))[0]] == [b"a", b"b"]
    found, end = runs_of(b"".join(some) * 50)
    assert (len(found), end) == (1, len(some[0]))


@pytest.mark.parametrize("words", [2, WORDS_MAX])
@pytest.mark.parametrize("values", [[b"x"], [b"x", b"yy"]], ids=["even", "uneven"])
def test_a_run_has_so_many_commands_and_words(words, values):
    each = [command(*[b"a"] * (words - 1), value) for value in values * LEAST]
    assert runs_of(b"".join(each[: LEAST - 1])) == ([], 0)
    assert [run.count for run in runs_of(b"".join(each[:LEAST]))[0]] == [LEAST]
    for other in (1, WORDS_MAX + 1):
        assert runs_of(command(*[b"a"] * other) * LEAST) == ([], 0)


BEGUN = b"*3\r\n$1\r\na\r\n$1\r\nb\r\n$"


@pytest.mark.parametrize(
    "data",
    [
        BEGUN + b"01\r\nx\r\n", BEGUN + b"+1\r\nx\r\n", BEGUN + b"0\r\n", BEGUN + b"1\rx\r\n", BEGUN + b"\r\n\r\n",
        BEGUN + b"1_0\r\n" + b"x" * 10 + b"\r\n", BEGUN + b"-1\r\n", BEGUN + b"1\r\nx()", BEGUN + b"1\r\nx\r()",
        BEGUN.replace(b"a\r\n", b"a()") + b"1\r\nx\r\n", BEGUN + b"x\r\nx\r\n", BEGUN + b"2\r\nx\r\n",
    ],
)  # fmt: skip
def test_what_repeats_and_is_no_run_is_parsed(data):
    strict, fast = CommandParser(LIMITS), trusted()
    data = data * 20 + command(b"PING") * 300
    assert fed(fast, [data]) == fed(strict, [data])
    assert fast.error == strict.error


def test_a_run_is_within_the_limits_of_a_command():
    data = command(b"ENQUEUE", b"k", b"x" * 50) * 20
    small = trusted(RequestLimits(arguments=3, command_bytes=len(data) - 1))
    assert [type(each) for each in small.feed(data)] == [list] * 20
    assert [type(each) for each in trusted().feed(data)] == [Run]
