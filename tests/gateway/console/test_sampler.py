"""What the console remembers of a broker: rates, histories, and silence."""

from __future__ import annotations

from typing import Any

import pytest
from penstock.clients.errors import TimedOut
from penstock.gateway.console import sampler as module
from penstock.gateway.console.sampler import Sampler


@pytest.fixture
def sampler(site) -> Sampler:
    return site.console.maker.sampler


def send(client, topic: str, *values: bytes) -> None:
    with client.producer(topic) as producer:
        producer.send_many(values)


def test_the_first_look_has_no_rates(site, sampler, penstock_client):
    penstock_client.create_topic("a")
    seen = site.run(sampler.look())
    assert [topic.name for topic in seen.sample.topics] == ["a"]
    assert (seen.before, seen.latest("records"), seen.latest("topic:a"), len(seen.times)) == (None, None, None, 0)


def test_two_looks_make_rates(site, sampler, penstock_client):
    penstock_client.create_topic("a", partitions=2)
    send(penstock_client, "a", b"before")
    site.run(sampler.look())
    send(penstock_client, "a", b"1", b"2", b"3", b"4")
    site.later(2.0)
    seen = site.run(sampler.look())
    assert (seen.latest("topic:a"), seen.latest("records"), len(seen.times)) == (2.0, 2.0, 1)


def test_viewers_share_a_look(site, sampler, penstock_client):
    first = site.run(sampler.look())
    site.later(module.FRESH_S - 0.25)
    assert site.run(sampler.look()) is first
    site.later(0.25)
    assert site.run(sampler.look()) is not first


def test_groups_have_lag_and_queues_depth(site, sampler, penstock_client):
    penstock_client.create_topic("a")
    penstock_client.set_queue("a", "q")
    penstock_client.commit_group("a", "g", {0: 0})
    send(penstock_client, "a", b"1", b"2")
    site.run(sampler.look())
    site.later()
    seen = site.run(sampler.look())
    assert (seen.latest("group:a/g"), seen.latest("queue:a/q")) == (2.0, 2.0)


def test_a_history_is_bounded_and_ends_with_its_thing(site, sampler, penstock_client, monkeypatch):
    penstock_client.create_topic("a")
    site.run(sampler.look())
    for _ in range(module.POINTS + 5):
        site.later()
        site.run(sampler.look())
    assert len(sampler._history["topic:a"]) == len(sampler._times) == module.POINTS
    penstock_client.delete_topic("a")
    site.later()
    assert "topic:a" not in site.run(sampler.look()).history
    monkeypatch.setattr(module, "THINGS_MOST", len(sampler._history))
    penstock_client.create_topic("b")
    site.later()
    assert "topic:b" not in site.run(sampler.look()).history


def test_a_topic_made_again_has_no_rate_below_zero(site, sampler, penstock_client):
    penstock_client.create_topic("a")
    send(penstock_client, "a", *[b"x"] * 10)
    site.run(sampler.look())
    penstock_client.delete_topic("a")
    penstock_client.create_topic("a")
    site.later()
    assert site.run(sampler.look()).latest("topic:a") == 0.0


def test_after_a_gap_histories_begin_anew(site, sampler, penstock_client):
    for _ in range(3):
        site.run(sampler.look())
        site.later()
    assert len(sampler._times) == 2
    site.later(module.GAP_S)
    seen = site.run(sampler.look())
    assert (len(seen.times), seen.before, seen.history) == (0, None, {})


def failing(error: Exception) -> Any:
    async def stats() -> Any:
        raise error

    return stats


@pytest.mark.parametrize("error", [TimedOut("no answer in time"), TimeoutError()])
def test_a_broker_that_is_away_leaves_what_was_seen(site, sampler, penstock_client, monkeypatch, error):
    penstock_client.create_topic("a")
    before = site.run(sampler.look())
    monkeypatch.setattr(sampler._client, "stats", failing(error))
    site.later()
    seen = site.run(sampler.look())
    assert (seen.sample, seen.problem) == (before.sample, str(error) or "The broker does not answer.")
    monkeypatch.undo()
    site.later()
    assert site.run(sampler.look()).problem == ""


def test_a_broker_that_never_answered_has_a_page(site, sampler, monkeypatch):
    monkeypatch.setattr(sampler._client, "stats", failing(TimedOut("no answer in time")))
    page = site.page("/")
    assert "The broker has not answered yet." in page
    assert "no answer in time" in page


def test_processes_are_those_of_the_supervisor(site, penstock_client):
    import os

    found = Sampler(site.link, os.getpid(), lambda: site.now_s)
    seen = site.run(found.look())
    assert "supervisor" in seen.sample.usage
