"""The tables of barriers and ties: what effects add up to, and what a snapshot and a copy hold."""

from __future__ import annotations

from msgspec import msgpack
from penstock.broker.engine.tables import effects as fx
from penstock.broker.engine.tables.barriers import UNKNOWN_TASK, BarrierTable, Word
from penstock.broker.engine.tables.ties import MemberEnd

ONE, TWO = b"1" * 16, b"2" * 16


def table(*effects: fx.BarrierSet | fx.BarrierTold | fx.BarrierFired | fx.BarriersForgotten) -> BarrierTable:
    made = BarrierTable()
    for effect in effects:
        made.apply(effect)
    return made


def told(member: int, state: str = "completed", barrier: bytes = ONE) -> fx.BarrierTold:
    return fx.BarrierTold(barrier, [(member, state, b"r", "")])


SET = fx.BarrierSet(ONE, 2, False, {"h": b"v"}, 3, 100, "ann")


def test_a_barrier_is_ready_when_each_member_has_a_word_that_counts():
    made = table(SET, told(0), told(0))
    assert not made.ready
    made.apply(told(1, "dead"))
    assert not made.ready
    made.apply(told(1, "too_large"))
    assert list(made.ready) == [ONE]
    made.apply(fx.BarrierFired(ONE))
    assert (made.by_id, made.ready) == ({}, {})


def test_words_of_members_that_it_has_not_and_to_others_change_nothing():
    made = table(SET, told(2), told(0, barrier=TWO))
    assert made.by_id[ONE].words == {}


def test_a_barrier_that_is_set_again_keeps_what_it_was_told():
    made = table(SET, told(0), fx.BarrierSet(ONE, 1, True, {}, 0, 5))
    assert (made.by_id[ONE].members, list(made.by_id[ONE].words)) == (2, [0])


def test_barriers_expire_at_their_time_and_not_before():
    made = table(SET, fx.BarrierSet(TWO, 1, True, {}, 0, 200))
    for each in (made, made.copy(), BarrierTable.load(made.dump())):
        assert each.expired(99) == []
        assert each.expired(100) == [ONE]
        each.apply(fx.BarriersForgotten([ONE]))
        assert each.expired(199) == []
        assert each.expired(200) == [TWO]
        assert each.due_us == 200


def test_bytes_are_those_of_members_headers_and_words_and_go_with_their_barrier():
    made = table(SET, fx.BarrierSet(TWO, 1, True, {}, 0, 5), SET)
    assert made.bytes == made.by_id[ONE].size + 64 == (2 * 64 + 2) + 64
    made.apply(fx.BarrierTold(ONE, [(0, "dead", b"", "öfters"), (0, "completed", b"rr", ""), (0, "dead", b"", "x")]))
    assert made.bytes == 194 + 2
    made.apply(fx.BarrierTold(TWO, [(0, "dead", b"", "ö"), (0, "completed", b"rr", ""), (1, "completed", b"rr", "")]))
    for each in (made, made.copy(), BarrierTable.load(made.dump())):
        assert each.bytes == 196 + 2
        each.apply(fx.BarrierFired(TWO))
        each.apply(fx.BarrierFired(TWO))
        assert each.bytes == 132
        each.apply(fx.BarriersForgotten([TWO, ONE, ONE]))
        assert each.bytes == 0


def test_a_copy_and_a_snapshot_have_what_is_ready_and_go_on_alone():
    made = table(SET, told(1), told(0))
    copy, loaded = made.copy(), BarrierTable.load(made.dump())
    assert list(copy.ready) == list(loaded.ready) == [ONE]
    assert list(made.dump()[0].words) == [0, 1]
    other = table(SET)
    ahead = other.copy()
    ahead.apply(told(0))
    assert other.by_id[ONE].words == {}
    copy.apply(fx.BarrierFired(ONE))
    assert list(made.ready) == [ONE]


def test_words_name_their_tasks_and_those_of_logs_of_before_name_none():
    old = fx.decode(msgpack.encode([[50, ONE, [[0, "dead", b"", "x"]]]]))
    new = fx.BarrierTold(ONE, [(0, "dead", b"", "x"), (1, "dead", b"", "y")], [(TWO, 3, 17), (TWO, 0, -1)])
    made = table(SET, *old)
    assert made.by_id[ONE].words[0].task == UNKNOWN_TASK
    made.apply(*fx.decode(fx.encode([new])))
    assert [word.task for word in made.by_id[ONE].words.values()] == [(TWO, 3, 17), (TWO, 0, -1)]
    assert made.by_id[ONE].words[0].silent.task == (TWO, 3, 17)


def test_snapshots_of_before_name_no_tasks():
    (told,) = msgpack.decode(msgpack.encode([["dead", b"", "x"]]), type=list[Word])
    (end,) = msgpack.decode(msgpack.encode([[1, TWO, 0, ONE, 4, "dead", b"", "x"]]), type=list[MemberEnd])
    assert (told.task, end.offset) == (UNKNOWN_TASK, -1)
