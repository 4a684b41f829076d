"""The small pure pieces: names, settings, log time, effects as bytes."""

from __future__ import annotations

import pytest
from penstock.broker.engine import Now, TopicSettings
from penstock.broker.engine.logs.clock import LogTime
from penstock.broker.engine.tables import effects, settings
from penstock.broker.engine.tables.names import check_name, check_topic_name
from penstock.broker.errors import InvalidRequest, InvalidSettings, UnknownEffect
from penstock.storage.errors import InvalidTopic

# -- names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "x" * 200, "-", "_one", "9.9"])
def test_a_good_topic_name_is_taken(name: str):
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".hidden", "..", "a/b", "a b", "a\n", "ä", "x" * 201, "a\0", "a:b", "\n"])
def test_a_bad_topic_name_is_refused_with_the_rule(name: str):
    with pytest.raises(InvalidTopic, match="1 to 200 characters out of"):
        check_topic_name(name)


def test_names_with_two_underscores_are_reserved():
    with pytest.raises(InvalidTopic, match="reserved"):
        check_topic_name("__txn")


def test_a_long_bad_name_is_not_repeated_in_full():
    with pytest.raises(InvalidTopic) as caught:
        check_topic_name("/" * 100_000)
    assert len(caught.value.message) < 250


@pytest.mark.parametrize("name", ["", "a b", ".a"])
def test_other_names_follow_the_same_rule(name: str):
    with pytest.raises(InvalidRequest, match=r"^group name .* is not allowed"):
        check_name("group", name)


# -- settings ---------------------------------------------------------------------------------------


def test_settings_have_defaults_and_travel_by_name():
    parsed = settings.parse({})
    assert parsed == TopicSettings()
    assert settings.parse(parsed.named()) == parsed


def test_given_settings_are_kept():
    parsed = settings.parse({"commit": "written", "retention_s": 60, "codec": "zstd", "segment_bytes": 1 << 20})
    assert (parsed.commit, parsed.retention_s, parsed.codec, parsed.segment_bytes) == ("written", 60.0, "zstd", 1 << 20)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"comit": "durable"}, "did you mean commit"),
        ({"partition": 3}, r"did you mean partitions\?"),
        ({"retention": 3}, r"did you mean retention_s\?"),
        ({"zzz": 1}, "known are commit, segment_bytes"),
        ({"commit": "quorum"}, "commit='quorum' is not allowed: durable or written$"),
        ({"codec": "gzip"}, "codec='gzip' is not allowed: none or lz4 or zstd$"),
        ({"segment_bytes": 1}, "segment_bytes=1 is not allowed: 65536 to"),
        ({"segment_bytes": "64MB"}, "segment_bytes='64MB' is not allowed: it has to be a whole number"),
        ({"max_record_bytes": 0}, "max_record_bytes=0"),
        ({"retention_s": -1}, "retention_s"),
        ({"retention_bytes": 5}, "retention_bytes=5"),
        ({"retain_unread": "yes"}, "retain_unread"),
        ({"retention_s": float("nan")}, "retention_s"),
    ],
)
def test_a_bad_setting_is_refused_with_its_name(given: dict[str, object], sentence: str):
    with pytest.raises(InvalidSettings, match=sentence):
        settings.parse(given)


def test_altering_changes_what_is_given_and_nothing_else():
    before = settings.parse({"retention_s": 60, "codec": "lz4"})
    after = settings.altered(before, {"retention_s": None})
    assert (after.retention_s, after.codec) == (None, "lz4")


def test_the_commit_level_and_the_partitioner_of_a_topic_are_for_life():
    with pytest.raises(InvalidSettings, match="cannot be changed from 'durable' to 'written'"):
        settings.altered(TopicSettings(), {"commit": "written"})
    with pytest.raises(InvalidSettings, match="partitioner cannot be changed from 'xxh3' to 'murmur2'"):
        settings.altered(TopicSettings(), {"partitioner": "murmur2"})
    assert settings.altered(TopicSettings(), {"commit": "durable"}) == TopicSettings()


# -- log time ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wall", "monotonic_s", "expected", "ignored"),
    [
        (1_000_100, 10.0001, 1_000_100, 0),  # both clocks agree
        (1_005_000, 10.001, 1_005_000, 0),  # the wall clock is a little ahead: followed
        (900_000, 10.5, 1_500_000, 0),  # the wall clock went back: time goes on
        (1_000_000, 10.0, 1_000_000, 0),  # nothing moved
        (9_000_000_000, 10.001, 1_001_000, 8_998_999_000),  # a jump over the limit: not followed, reported
        (0, 9.0, 1_000_000, 0),  # a monotonic clock that went back: nothing moves
    ],
)
def test_log_time_follows_the_wall_clock_forward_within_a_limit(
    wall: int, monotonic_s: float, expected: int, ignored: int
):
    time = LogTime(Now(1_000_000, 10.0), jump_s=60)
    assert time.read(Now(wall, monotonic_s)) == expected
    assert time.away_us == ignored


def test_log_time_never_goes_back_whatever_the_clocks_do():
    time, last = LogTime(Now(10**15, 0.0), 60), 0
    for step, wall in enumerate([10**15 + 5, 3, 10**15 + 10**12, 7, 10**15 + 10**6, 10**15]):
        now = time.read(Now(wall, step * 0.001))
        assert now >= last
        last = now


def test_a_jump_that_is_taken_back_leaves_no_report():
    time = LogTime(Now(0, 0.0), 1)
    time.read(Now(10**9, 0.1))
    assert time.away_us > 0
    time.read(Now(200_000, 0.2))
    assert time.away_us == 0


def test_log_time_goes_on_from_where_a_log_ended_unless_that_is_too_far_ahead():
    time = LogTime(Now(100 * 10**6, 0.0), jump_s=60)
    time.reach(130 * 10**6)
    time.reach(90 * 10**6)
    time.reach(1000 * 10**6)
    assert time.read(Now(100 * 10**6, 0.0)) == 130 * 10**6
    assert time.read(Now(105 * 10**6, 5.0)) == 135 * 10**6, "it does not stand still"


DAY_US = 86_400_000_000


def test_a_node_that_started_days_in_the_past_follows_the_clock_once_it_has_stayed_where_it_was_set():
    time, second = LogTime(Now(DAY_US, 0.0), jump_s=3600), 0
    while not time.jumps:
        second += 5
        last, now = time.last_us, Now(11 * DAY_US + second * 10**6, float(second))
        assert time.read(now) >= last + 5 * 10**6
    assert second == 5 + 15 * 60
    assert (time.last_us, time.away_us) == (now.wall_us, 0)
    assert time.read(Now(now.wall_us + 1, second + 1e-6)) == now.wall_us + 1


def test_a_clock_far_ahead_that_moves_on_or_is_looked_at_after_a_long_sleep_is_not_followed():
    time = LogTime(Now(0, 0.0), jump_s=3600)
    for minute in range(100):  # another time each time
        time.read(Now((10 + minute) * DAY_US, minute * 60.0))
    time.read(Now(200 * DAY_US, 10_000.0))
    time.read(Now(200 * DAY_US + 3600 * 10**6, 13_600.0))  # agrees, an hour later: two looks
    assert (time.jumps, time.away_us > 0) == (0, True)


def test_a_node_that_started_days_in_the_future_comes_back_without_going_back():
    time, wall_us, second = LogTime(Now(4 * DAY_US, 0.0), jump_s=3600), DAY_US, 0
    while time.away_us or not second:
        second += 60
        last, wall_us = time.last_us, wall_us + 60 * 10**6
        assert time.read(Now(wall_us, float(second))) >= last + 30 * 10**6
    assert abs(second - 6 * 86_400) <= 60
    assert abs(time.last_us - wall_us) <= 10**6


# -- effects ----------------------------------------------------------------------------------------

SAMPLES = [
    effects.FirstOffset(7),
    effects.ProducerOpened("p", 2**64 - 1, 3),
    effects.ProducersExpired([1, 2]),
    effects.CursorMoved("g", 9),
    effects.OwnerSet("g", "m", 4, 0),
    effects.GroupDeleted("g"),
    effects.TopicCreated("t", b"i" * 16, 2, {"commit": "durable"}, 5),
    effects.TopicAltered(b"i" * 16, 3, {}),
    effects.TopicDeleted(b"i" * 16),
    effects.TopicErased(b"i" * 16),
]
GOLDEN = (
    "9a92010795 02a170cfffffffffffffffff03a0"
    "92039201029304a167099505a167a16d04009206a1679640a174c41069696969696969696969"
    "69696969696902 81a6636f6d6d6974a764757261626c65059441c410696969696969696969696969696969690380"
    "9242c410696969696969696969696969696969699243c41069696969696969696969696969696969"
).replace(" ", "")


BEFORE = GOLDEN.replace("9502a170cfffffffffffffffff03a0", "9402a170cfffffffffffffffff03")
"""Of versions without owners."""


def test_effects_survive_encoding():
    assert effects.decode(effects.encode(SAMPLES)) == SAMPLES


def test_the_bytes_of_effects_do_not_change():
    assert effects.encode(SAMPLES).hex() == GOLDEN


def test_effects_of_versions_without_owners_have_none():
    assert len(BEFORE) == len(GOLDEN) - 2
    assert effects.decode(bytes.fromhex(BEFORE)) == SAMPLES


@pytest.mark.parametrize(
    "column",
    [bytes.fromhex("91923f01"), b"", b"\xc1", bytes.fromhex("910a"), bytes.fromhex("9191a161"), b"\x91\x92\x01"],
)
def test_an_effect_of_a_later_version_stops(column: bytes):
    with pytest.raises(UnknownEffect, match="upgrade"):
        effects.decode(column)


def test_a_field_of_a_later_version_is_skipped():
    assert effects.decode(bytes.fromhex("9193010709")) == [effects.FirstOffset(7)]
