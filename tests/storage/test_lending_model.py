"""Every order of a lent log's appenders, its broker and a reader: nothing acknowledged or seen is lost.

    appender    byte; incarnation, grant; reload if the broker appended; batch; `appended`; free the byte; both again
    broker      borrow: PAUSED, byte, follow, append, publish, free, go on       recall: the same, then no grant
                forced: no grant, barrier, one look at `appended`, publish, cut, publish
                killed anywhere, and opened again: whole lock (or forced), incarnation, board, look, publish
    reader      grant, `appended`, grant and incarnation again; its limit never goes back; a new generation is listed
    keeper      `written`; sync the file; say so: the broker calls it durable, and a loss of power leaves it there

A store is visible to its own processor only, until its buffer drains: at any time, or at a system call. What is in
doubt for the appender goes to the broker again, which must not append it twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

Word = tuple[int, int]  # generation, seq
Entry = tuple[str, bool]  # a batch, and whether all of it is there
Buffer = tuple[tuple[str, object], ...]

BROKEN_IN = {
    "the appender looks at the grant again": "two appends, recalled",
    "the reader looks at the grant again": "two appends, recalled",
    "a barrier before the look": "two appends, recalled",
    "the segment before its word": "two appends, recalled",
    "reload after a borrow": "borrowed",
    "reload within the generation": "borrowed and forced",
    "follow beyond the word": "died",
    "torn bytes mean a cut": "died",
    "recall before a resend": "failed",
    "an exception ends the grant": "failed",
    "the byte before a new grant": "lent again",
    "incarnation before an append": "broker killed and board lost",
    "incarnation before an acknowledgement": "broker killed and board lost",
    "incarnation of readers": "broker killed and board lost",
    "a forced opening cuts": "broker killed and board lost",
    "the old grants end before the look": "broker killed and board lost",
    "an opening takes the bytes": "broker killed and board lost",
    "the keeper goes by what the broker wrote": "kept and forced",
}
"""Each rule, and a scenario in which some order does harm without it."""

RULES = frozenset(BROKEN_IN)


class Scenario(NamedTuple):
    """What may happen in one walk."""

    appends: int = 1
    borrows: int = 0
    recall: bool = True
    forced: bool = True
    dies: bool = False  # the appender, anywhere
    fails: bool = False  # the appender, anywhere, and goes on
    regrant: bool = False  # a second appender, once the first one is over
    crash: bool = False  # the broker, anywhere, once
    board_lost: bool = False  # the next broker does not find the board
    kept: bool = False  # the keeper runs


SCENARIOS = {
    "two appends, recalled": Scenario(appends=2),
    "borrowed": Scenario(appends=2, borrows=1, recall=False, forced=False),
    "borrowed and forced": Scenario(borrows=1),
    "died": Scenario(dies=True, borrows=1, forced=False),
    "failed": Scenario(appends=2, fails=True, forced=False),
    "failed and forced": Scenario(fails=True),
    "lent again": Scenario(regrant=True),
    "broker killed": Scenario(crash=True, borrows=1),
    "broker killed and board lost": Scenario(crash=True, borrows=1, board_lost=True, recall=False, forced=False),
    "kept and forced": Scenario(kept=True, borrows=1),
    "kept, and lent again": Scenario(kept=True, regrant=True, forced=False),
    "kept, and died": Scenario(kept=True, dies=True, borrows=1, forced=False),
    "kept, and the broker killed": Scenario(kept=True, crash=True, recall=False),
    "both killed": Scenario(crash=True, dies=True, recall=False, forced=False),
}


class Appender(NamedTuple):
    """`tail`: the seq it believes to be the last."""

    step: str = "lock"
    number: int = 1
    tail: int = 0
    buffer: Buffer = ()


class State(NamedTuple):
    """`first` and `second`: the batches in the segments of both generations; the second one's begin behind `cut`."""

    lent: int = 1
    paused: bool = False
    written: Word = (1, 0)
    appended: Word = (1, 0)
    incarnation: int = 1
    first: tuple[Entry, ...] = ()
    cut: int | None = None
    second: tuple[Entry, ...] = ()
    byte: str = ""
    one: Appender = Appender()
    two: Appender = Appender("none")
    step: str = "idle"  # of the broker
    tail: int = 0
    generation: int = 1
    buffer: Buffer = ()
    done: frozenset[str] = frozenset()
    resent: frozenset[str] = frozenset()
    acked: frozenset[str] = frozenset()
    reading: tuple[str, int, Word] = ("lent", 0, (0, 0))
    limit: Word = (0, 0)
    seen: tuple[str, ...] = ()
    keeping: tuple[str, Word] = ("word", (1, 0))
    durable: tuple[str, ...] = ()
    broken: str = ""


def chain(state: State) -> tuple[str, ...]:
    """The log, as an opening finds it."""
    entries = state.first if state.cut is None else state.first[: state.cut] + state.second
    names = []
    for name, whole in entries:
        if not whole:
            break
        names.append(name)
    return tuple(names)


def drained(state: State, buffer: Buffer) -> State:
    if state.lent == 2 and ("appended", (1, 1)) in buffer and state.two.step != "none" and state.generation == 2:
        return state._replace(broken="a word of one grant under the next one")  # whose log may be another by then
    return state._replace(**dict(buffer)) if buffer else state  # later stores of a word come later


def write(state: State, generation: int, tail: int, entry: Entry) -> State:
    """Put a batch behind seq `tail`, in the segment of a generation."""
    base = 0 if generation == 1 else state.cut or 0
    entries = state.first if generation == 1 else state.second
    place = tail - base
    if generation == 2 and state.step == "over":
        return state  # void
    if place < len(entries) and entries[place] != (entry[0], False):
        return state._replace(broken=f"{entry[0]} written over {entries[place][0]}")
    if place > len(entries):
        return state._replace(broken="a gap")
    entries = (*entries[:place], entry)
    return state._replace(first=entries) if generation == 1 else state._replace(second=entries)


# -- the appenders ------------------------------------------------------------------------------------


def appender(state: State, who: str, rules: frozenset[str], scenario: Scenario) -> Iterator[State]:
    """What an appender may do next. Its batches are a1, a2 and c1."""
    me: Appender = getattr(state, who)
    step, number, tail, buffer = me
    if buffer:
        yield drained(state, buffer[:1])._replace(**{who: me._replace(buffer=buffer[1:])})
    if step in ("none", "over"):
        return
    grant, name = (1, f"a{number}") if who == "one" else (2, "c1")
    generation = 1 if who == "one" else number
    free = "" if state.byte == who else state.byte

    def to(found: State, **moved: object) -> State:
        return found._replace(**{who: me._replace(**moved)})

    def call(found: State, **moved: object) -> State:
        return to(drained(found, buffer), buffer=(), **moved)

    def again(then: str = "over") -> State:
        """Free the byte and send the batch through the broker."""
        found = drained(state, buffer)._replace(byte=free, resent=state.resent | {name})
        more = then == "lock" and number < scenario.appends
        return to(found, buffer=(), step="lock" if more else "over", number=number + 1)

    alive = "incarnation before an append" not in rules or state.incarnation == 1
    if step == "lock" and not state.byte:
        yield call(state._replace(byte=who), step="check")
    elif step == "check":
        if state.lent == grant and alive and not state.paused:
            yield to(state, step="reload")
        elif state.lent == grant and alive:
            yield call(state._replace(byte=free), step="lock")
        else:
            yield again()
    elif step == "reload":
        behind = "reload after a borrow" in rules and state.written[1] > tail
        if state.written[0] == generation or "reload within the generation" not in rules:
            yield to(state, step="begin", tail=state.written[1] if behind else tail)
        else:
            yield again()
    elif step == "begin":
        yield call(write(state, generation, tail, (name, False)), step="write")
    elif step == "write":
        yield call(write(state, generation, tail, (name, True)), step="store")
    elif step == "store":
        yield to(state, step="unlock", tail=tail + 1, buffer=(*buffer, ("appended", (generation, tail + 1))))
    elif step == "unlock":
        yield call(state._replace(byte=free), step="ask")
    elif step == "ask":
        granted = state.lent == grant or "the appender looks at the grant again" not in rules
        alive = "incarnation before an acknowledgement" not in rules or state.incarnation == 1
        if granted and alive:
            more = who == "one" and number < scenario.appends
            moved = to(state, step="lock" if more else "over", number=number + (who == "one"))
            yield moved._replace(acked=state.acked | {name})
        else:
            yield again()
    if scenario.dies and who == "one":
        yield to(drained(state, buffer)._replace(byte=free, done=state.done | {"died"}), step="over", buffer=())
    if scenario.fails and who == "one" and step not in ("lock", "over"):
        yield again("over" if "an exception ends the grant" in rules else "lock")


# -- the broker ---------------------------------------------------------------------------------------


def broker(state: State, rules: frozenset[str], scenario: Scenario) -> Iterator[State]:
    """What the broker may do next."""
    step, buffer = state.step, state.buffer
    lost = scenario.board_lost and "crashed" in state.done  # what it stores is on another board

    def store(found: State, *words: tuple[str, object], **moved: object) -> State:
        return found._replace(buffer=found.buffer if lost else (*found.buffer, *words), **moved)

    def call(**moved: object) -> State:
        return drained(state, buffer)._replace(buffer=(), **moved)

    if buffer:
        yield drained(state, buffer[:1])._replace(buffer=buffer[1:])
    if step == "idle":
        yield from idle(state, rules, scenario, store)
    elif step in ("borrow", "recall"):
        if not state.byte:
            yield call(byte="broker", step=f"{step}: follow")
        if scenario.forced and step == "recall":
            yield call(step="force")
    elif step.endswith(": follow"):
        yield from followed(state, rules, step.partition(":")[0], call)
    elif step == "borrow: append":
        found = call()
        found = write(found, found.generation, found.tail, ("b1", True))
        found = store(found, ("written", (state.generation, state.tail + 1)))
        yield found._replace(tail=state.tail + 1, step="borrow: free")
    elif step == "borrow: free":
        yield store(call(byte="" if state.byte == "broker" else state.byte), ("paused", False), step="idle")
    elif step == "recall: end":
        yield store(state, ("lent", 0), ("paused", False), step="recall: free")
    elif step == "recall: free":
        yield call(byte="", step="idle")
    elif step == "force":
        yield store(state, ("lent", 0), step="force: barrier")
    elif step == "force: barrier":
        yield call(step="force: look") if "a barrier before the look" in rules else state._replace(step="force: look")
    elif step == "force: look":
        yield store(state, ("written", (state.generation, looked(state))), tail=looked(state), step="cut")
    elif step == "cut" and state.generation == 2:  # a third generation: the walk ends
        yield call(second=state.second[: state.tail - (state.cut or 0)], step="over")
    elif step == "cut":
        if "the segment before its word" in rules:
            yield call(cut=state.tail, step="cut: publish")
        else:
            yield store(state, ("written", (2, state.tail)), step="cut: late")
    elif step == "cut: late":
        yield call(cut=state.tail, generation=2, step="idle", byte="" if state.byte == "broker" else state.byte)
    elif step == "cut: publish":
        found = store(state, ("written", (2, state.tail)), generation=2, step="idle")
        if state.byte == "broker":
            found = store(found, ("lent", 0), ("paused", False), step="recall: free")
        yield found
    elif step == "regrant: free":
        yield call(byte="" if state.byte == "broker" else state.byte, step="idle")
    elif step == "resend: append":
        name = min(state.resent)
        found = call(resent=state.resent - {name}, step="idle")
        if name not in chain(found)[: state.tail]:
            found = write(found, found.generation, found.tail, (name, True))
            found = store(found, ("written", (state.generation, state.tail + 1)))._replace(tail=state.tail + 1)
        yield found._replace(acked=found.acked | {name})
    elif step.startswith("open"):
        yield from opening(state, rules, scenario, store, call)
    if scenario.crash and "crashed" not in state.done and step != "over":
        held = "" if state.byte == "broker" else state.byte
        yield call(byte=held, step="open", done=state.done | {"crashed"})


def looked(state: State) -> int:
    """The last seq that counts, by the words."""
    generation, seq = state.appended
    return max(seq, state.tail) if generation == state.generation else state.tail


def idle(state: State, rules: frozenset[str], scenario: Scenario, store) -> Iterator[State]:
    done = state.done
    lost = scenario.board_lost and "crashed" in done
    if dict(state.buffer).get("lent", state.lent) and not lost:  # its own store comes first
        if scenario.borrows and "borrowed" not in done:
            yield store(state, ("paused", True), step="borrow", done=done | {"borrowed"})
        asked = state.resent or (scenario.recall and state.lent not in done) or "died" in done
        if asked and "recall before a resend" in rules:
            yield store(state, ("paused", True), step="recall", done=done | {str(state.lent)})
        if state.appended[0] == state.generation and state.appended[1] > state.tail:
            yield store(state, ("written", state.appended), tail=state.appended[1])
    elif state.resent:
        yield state._replace(step="resend: append")
    elif scenario.borrows and "borrowed" not in done:
        yield state._replace(step="borrow: append", done=done | {"borrowed"})
    elif scenario.regrant and "regranted" not in done and not state.buffer:
        held = "the byte before a new grant" in rules
        if not held or not state.byte:
            found = store(
                state, ("appended", (state.generation, state.tail)), ("lent", 2), step="regrant: free",
                done=done | {"regranted"}, two=Appender("lock", state.generation, state.tail),
            )  # fmt: skip
            yield found._replace(byte="broker") if held else found
    if state.resent and "recall before a resend" not in rules:
        yield state._replace(step="resend: append")


def followed(state: State, rules: frozenset[str], verb: str, call) -> Iterator[State]:
    """The broker has the byte: what the file has counts, beyond the word, too."""
    whole = len(chain(state))
    entries = state.first if state.cut is None else state.first[: state.cut] + state.second
    torn = len(entries) > whole and "torn bytes mean a cut" in rules
    tail = whole if "follow beyond the word" in rules else looked(state)
    found = call(tail=tail)
    found = found._replace(buffer=(*found.buffer, ("written", (state.generation, tail))))
    after = {"borrow": "borrow: append", "recall": "recall: end"}[verb]
    yield found._replace(step="cut" if torn else after)


def opening(state: State, rules: frozenset[str], scenario: Scenario, store, call) -> Iterator[State]:
    """The next broker."""
    step = state.step
    look_first = "the old grants end before the look" not in rules
    if step == "open":
        takes = "an opening takes the bytes" in rules
        if not takes:
            yield call(step="open: look" if look_first else "open: incarnation")
        elif not state.byte:
            yield call(byte="broker", step="open: look" if look_first else "open: incarnation")
        else:
            yield call(step="open forced: look" if look_first else "open forced: incarnation")
    elif step.endswith(": incarnation"):
        yield call(incarnation=2, step=step.replace("incarnation", "board"))
    elif step.endswith(": board"):
        after = step.replace("board", "publish" if look_first else "look")
        yield store(state, ("lent", 0), ("paused", False), ("written", (0, 0)), ("appended", (0, 0)), step=after)
    elif step.endswith(": look"):
        after = step.replace("look", "incarnation" if look_first else "publish")
        yield call(tail=len(chain(state)), generation=1 if state.cut is None else 2, step=after)
    elif step.endswith(": publish"):
        found = store(state, ("written", (state.generation, state.tail)))
        entries = state.first if state.cut is None else state.first[: state.cut] + state.second
        cuts = ("forced" in step and "a forced opening cuts" in rules) or len(entries) > state.tail
        if cuts and state.generation == 1:
            yield found._replace(step="cut")
        else:
            yield found._replace(step="open: free")
    elif step == "open: free":
        yield call(byte="" if state.byte == "broker" else state.byte, step="idle")


# -- the reader ---------------------------------------------------------------------------------------


def reader(state: State, rules: frozenset[str]) -> Iterator[State]:
    step, lent, word = state.reading
    if step == "lent":
        yield state._replace(reading=("word", state.lent, (0, 0)))
    elif step == "word":
        yield state._replace(reading=("again", lent, state.appended if lent else (0, 0)))
    elif step == "again":
        same = state.lent == lent or "the reader looks at the grant again" not in rules
        alive = state.incarnation == 1 or lent == 2 or "incarnation of readers" not in rules
        yield state._replace(reading=("limit", lent, word if same and alive else (0, 0)))
    elif step == "limit":
        limit = max(word, state.written, state.limit)
        found = state._replace(reading=("lent", 0, (0, 0)), limit=limit)
        if limit != state.limit:
            yield from read(found)
        else:
            yield found


def read(state: State) -> Iterator[State]:
    """Read up to the limit, by a listing that is as new as the generation asks for."""
    generation, seq = state.limit
    if generation == 2 and state.cut is None:
        yield state._replace(broken="the limit names a generation that is not there")
        return
    listings = [state.first] if generation == 1 else []
    if state.cut is not None:
        listings.append(state.first[: state.cut] + state.second)
    for entries in listings:
        names = tuple(name if whole else "torn" for name, whole in entries[:seq])
        broken = "" if len(names) == seq and "torn" not in names else "read what is not there"
        yield state._replace(seen=max(names, state.seen, key=len), broken=broken)


# -- the keeper ---------------------------------------------------------------------------------------


def keeper(state: State, rules: frozenset[str]) -> Iterator[State]:
    """The keeper may sleep between any two steps; its next round begins where this one ended."""
    step, word = state.keeping
    by_broker = "the keeper goes by what the broker wrote" in rules
    written = state.written if by_broker else max(state.written, state.appended)
    if step == "word" and written > word:
        yield state._replace(keeping=("sync", written))
    elif step == "sync":
        entries = state.first if word[0] == 1 else state.first[: state.cut] + state.second
        names = tuple(name if whole else "torn" for name, whole in entries[: word[1]])
        there = len(names) == word[1] and "torn" not in names
        found = state._replace(keeping=("word", word), broken="" if there else "synced what is not there")
        yield found._replace(durable=max(names, state.durable, key=len))


# -- the walk -----------------------------------------------------------------------------------------


def wrong(state: State) -> str:
    """What is wrong with a state; "" if nothing is."""
    if state.broken:
        return state.broken
    log = chain(state)
    if not state.acked <= set(log):
        return "acknowledged and gone"
    if log[: len(state.seen)] != state.seen:
        return "seen and gone"
    if log[: len(state.durable)] != state.durable:
        return "durable and gone"
    own = [name for name in log if name[0] == "a"]
    if len(set(log)) < len(log):
        return "twice"
    return "" if own == sorted(own) else "out of order"


def walk(scenario: Scenario, rules: frozenset[str]) -> tuple[int, set[str]]:
    """How many states there are, and what is wrong with some of them."""
    begin = State()
    seen, todo, found = {begin}, [begin], set()
    while todo:
        state = todo.pop()
        problem = wrong(state)
        if problem:
            found.add(problem)
            if rules != RULES:
                break
            continue
        for after in (
            *appender(state, "one", rules, scenario), *appender(state, "two", rules, scenario),
            *broker(state, rules, scenario), *reader(state, rules), *(keeper(state, rules) if scenario.kept else ()),
        ):  # fmt: skip
            if after not in seen:
                seen.add(after)
                todo.append(after)
    return len(seen), found


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_order_loses_or_repeats_what_was_acknowledged_or_seen(name: str) -> None:
    states, problems = walk(SCENARIOS[name], RULES)
    assert problems == set()
    assert states > 300


@pytest.mark.parametrize("left_out", sorted(RULES))
def test_without_any_one_of_the_rules_some_order_does(left_out: str) -> None:
    assert walk(SCENARIOS[BROKEN_IN[left_out]], RULES - {left_out})[1]
