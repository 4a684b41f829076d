"""Open-loop arithmetic, on a clock that is told: schedules, stalls, late senders, what never arrives."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import pytest

from perf.load import histograms, openloop
from perf.load.openloop import SECOND_NS, Arrivals, Over, Schedule

MS = 1_000_000
SIZE = 100


class World:
    """A system with a clock of its own: hands values on after `delay_ns`, and takes none during a stall."""

    def __init__(self, delay_ns: int = 0, stall: range = range(0), every_send_ns: int = 0) -> None:
        self.now = 0
        self.delay_ns = delay_ns
        self.stall = stall
        self.every_send_ns = every_send_ns
        self.arrivals: deque[tuple[int, Sequence[bytes]]] = deque()
        self.calls: list[int] = []

    def clock(self) -> int:
        return self.now

    def sleep_until(self, moment: int) -> None:
        assert moment > self.now, "a sleep into the past turns for ever"
        self.now = moment

    def send(self, values: Sequence[bytes]) -> None:
        if self.now in self.stall:
            self.now = self.stall.stop
        self.now += self.every_send_ns
        self.calls.append(len(values))
        self.arrivals.append((self.now + self.delay_ns, values))

    def receive(self) -> Sequence[bytes]:
        if not self.arrivals:
            raise Over
        self.now, values = self.arrivals.popleft()
        return values

    def run(self, schedule: Schedule) -> tuple[openloop.Offered, openloop.Ages]:
        offered = openloop.offer(self.send, schedule, SIZE, self.clock, self.sleep_until)
        ended = self.now
        got = openloop.collect(self.receive, schedule.count, self.clock)
        return offered, openloop.ages(schedule, got, ended)


def stamp(due_ns: int) -> bytes:
    return due_ns.to_bytes(8, "little")


@pytest.mark.parametrize("rate", [1, 3, 1000, 1001, 7_777_777])
def test_due_counts_exactly_the_messages_whose_moment_has_come(rate):
    schedule = Schedule(5_000, rate, 1000)
    for number in (0, 1, 2, 500, 999):
        moment = schedule.at(number)
        assert schedule.due(moment) >= number + 1
        assert schedule.due(moment - 1) <= number
    assert schedule.due(4_999) == 0
    assert schedule.due(schedule.end_ns + 10 * SECOND_NS) == 1000


def test_the_schedule_is_absolute_and_does_not_drift():
    schedule = Schedule(0, 3, 3_000_001)
    assert schedule.at(3_000_000) == 1_000_000 * SECOND_NS
    assert [int(due) for due in schedule.stamps()[:4]] == [schedule.at(number) for number in range(4)]


def test_a_system_in_time_shows_its_delay_and_nothing_else():
    offered, ages = World(delay_ns=2 * MS).run(Schedule(SECOND_NS, 1000, 1000))
    assert offered.sent == 1000
    assert offered.lateness_ns.max() == 0
    assert set(ages.ages_ns) == {2 * MS}
    assert (ages.missing, ages.growth) == (0, 0.0)


def test_a_stall_is_charged_to_every_message_that_was_due_in_it():
    """Closed loops see one slow message of a thousand here, and a p99 of 1 ms: coordinated omission."""
    world = World(delay_ns=MS, stall=range(500 * MS, 600 * MS))
    _, ages = world.run(Schedule(0, 1000, 1000))
    found = histograms.percentiles(histograms.histogram(ages.ages_ns))
    assert found.p50 == pytest.approx(1_000, rel=0.01)
    assert 85_000 < found.p99 < 101_000
    assert found.most == pytest.approx(101_000, rel=0.01)
    assert (ages.ages_ns > MS).sum() == 100


def test_a_sender_that_comes_late_makes_no_figure_better():
    """It wakes up 5 ms late each time; the messages are as old as that, and its lateness is told beside them."""
    world = World()
    punctual = world.sleep_until
    world.sleep_until = lambda moment: punctual(moment + 5 * MS)  # pyright: ignore[reportAttributeAccessIssue]
    offered, ages = world.run(Schedule(0, 1000, 600))
    assert int(ages.ages_ns.max()) == 5 * MS
    assert int(offered.lateness_ns.max()) == 5 * MS
    assert max(world.calls) == 6, "all that are due go at each wake-up"


def test_a_system_that_takes_half_of_the_rate_grows_by_a_second_per_second():
    world = World(every_send_ns=2 * MS)
    one_by_one = world.send
    world.send = lambda values: [one_by_one([value]) for value in values]  # pyright: ignore[reportAttributeAccessIssue]
    _, ages = world.run(Schedule(0, 1000, 2000))
    assert ages.growth == pytest.approx(1.0, rel=0.05)


def test_what_never_arrives_is_as_old_as_the_run_then():
    schedule = Schedule(0, 1000, 10)
    got = Arrivals([stamp(schedule.at(number)) for number in range(9)], [9 * MS], [9])
    ages = openloop.ages(schedule, got, ended_ns=2 * SECOND_NS)
    assert ages.missing == 1
    assert int(ages.ages_ns[-1]) == 2 * SECOND_NS - 9 * MS


def test_a_run_that_is_over_keeps_what_was_sent_and_how_late_the_next_one_was():
    world = World()

    def send(values: Sequence[bytes]) -> None:
        if world.now >= 50 * MS:
            world.now += 300 * MS
            raise Over
        world.send(values)

    offered = openloop.offer(send, Schedule(0, 1000, 100), SIZE, world.clock, world.sleep_until)
    assert offered.sent == 50
    assert int(offered.lateness_ns[-1]) == 300 * MS


def test_an_end_between_two_steps_of_receiving_loses_that_wake_up_only():
    world = World()
    world.arrivals.extend([(MS, [stamp(0)]), (2 * MS, [stamp(MS)])])
    moments = iter([MS])

    def clock() -> int:
        for moment in moments:
            return moment
        raise Over

    got = openloop.collect(world.receive, 2, clock)
    ages = openloop.ages(Schedule(0, 1000, 2), got, 5 * MS)
    assert list(ages.ages_ns) == [MS, 4 * MS]
    assert ages.missing == 1


def test_warming_messages_are_waited_for_and_not_counted():
    schedule = Schedule(0, 1000, 10, warm=4)
    got = Arrivals([stamp(schedule.at(number)) for number in range(1, 10)], [20 * MS], [9])
    ages = openloop.ages(schedule, got, 30 * MS)
    assert len(ages.ages_ns) == 6
    assert ages.missing == 0


def test_a_message_that_comes_twice_counts_when_it_came_first():
    got = Arrivals([stamp(0), stamp(0)], [3 * MS, 9 * MS], [1, 1])
    assert list(openloop.ages(Schedule(0, 1000, 1), got, 10 * MS).ages_ns) == [3 * MS]


def test_messages_of_another_run_are_refused():
    with pytest.raises(ValueError, match="1 of 1 messages received were never sent"):
        openloop.ages(Schedule(0, 1000, 5), Arrivals([stamp(17)], [MS], [1]), MS)


def test_a_message_from_the_future_is_refused():
    with pytest.raises(ValueError, match="before it was due"):
        openloop.ages(Schedule(5 * MS, 1000, 1), Arrivals([stamp(5 * MS)], [4 * MS], [1]), MS)


def test_histograms_keep_three_digits_and_every_value():
    ages = np.arange(1, 100_001) * 1_000
    found = histograms.percentiles(histograms.histogram(ages))
    assert found.p50 == pytest.approx(50_000, rel=1e-3)
    assert found.p90 == pytest.approx(90_000, rel=1e-3)
    assert found.p99 == pytest.approx(99_000, rel=1e-3)
    assert found.p999 == pytest.approx(99_900, rel=1e-3)
    assert found.most == pytest.approx(100_000, rel=1e-3)
