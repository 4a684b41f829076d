"""Search: which of several addresses is asked next for the leader."""

from __future__ import annotations

import pytest
from penstock.clients.connection.search import REST_MAX_S, REST_MIN_S, Search
from penstock.transport.errors import Unauthenticated

A, B, C, D = (f"tcp://{name}:1" for name in "abcd")


def test_all_are_asked_in_turn_and_a_rest_follows_each_round() -> None:
    search = Search([A, B])
    asked: list[tuple[str, float]] = []
    for _ in range(12):
        asked.append((search.address, round(search.at, 3)))
        search.missed(search.at, "no")
    assert [address for address, _ in asked] == [A, B] * 6
    assert [at for _, at in asked][::2] == [0.0, 0.05, 0.15, 0.35, 0.75, 1.15], "doubling to the most"
    assert [at for _, at in asked][1::2] == [0.0, 0.05, 0.15, 0.35, 0.75, 1.15], "no rest inside of a round"
    assert (REST_MIN_S, REST_MAX_S) == (0.05, 0.4)


def test_the_leader_that_a_node_names_is_asked_next() -> None:
    search = Search([A, B, C])
    search.missed(1.0, "it follows", term=3, leader=["unix:///c", "tcp://bad", D, B])
    assert (search.address, search.at, search.term) == (D, 1.0, 3), "of our scheme, whether or not we knew it"
    search.missed(1.0, "no connection")
    assert search.address == B, "the round goes on"


def test_a_leader_of_a_newer_term_is_asked_again() -> None:
    search = Search([A, B])
    search.missed(1.0, "it does not lead yet", term=3)
    search.missed(1.0, "it follows", term=4, leader=[A])
    assert (search.address, search.at) == (A, 1.0), "it did not lead in the term before"
    search.missed(1.0, "it does not lead yet")
    assert search.at == 1.0 + REST_MIN_S


def test_news_that_comes_unasked_ends_the_rest() -> None:
    search = Search([A, B])
    for _ in range(2):
        search.missed(1.0, "it does not lead", term=3)
    search.told(1.01, 2, [B])
    search.told(1.01, 3, [])
    assert (search.address, search.at) == (A, 1.0 + REST_MIN_S), "outdated, and no news"
    search.told(1.02, 4, ["unix:///b", B])
    assert (search.address, search.at, search.term) == (B, 1.02, 4)
    search.missed(1.02, "it does not lead yet", term=4)
    assert (search.address, search.at) == (A, 1.02), "a new round"
    search.missed(1.02, "it does not lead", term=4)
    assert search.at == pytest.approx(1.02 + 2 * REST_MIN_S), "the next rest is longer all the same"
    search.told(1.03, 4, [A])
    assert (search.address, search.at) == (A, 1.03), "of the same term, too"


def test_news_of_an_older_term_is_not_believed() -> None:
    search = Search([A, B, C])
    search.missed(1.0, "it follows", term=3)
    search.missed(1.0, "it follows", term=2, leader=[A])
    assert (search.address, search.term) == (C, 3)


def test_news_of_the_same_term_is_believed() -> None:
    search = Search([A, B, C])
    search.missed(1.0, "it follows", term=3)
    search.missed(1.0, "it follows", term=3, leader=[D])
    assert search.address == D


def test_nodes_that_name_each_other_are_asked_once_in_a_round() -> None:
    search = Search([A, B])
    search.missed(1.0, "it follows", term=3, leader=[B])
    search.missed(1.0, "it follows", term=3, leader=[A])
    assert search.at == pytest.approx(1.0 + REST_MIN_S)
    search.missed(search.at, "it follows", term=3, leader=[B])
    search.missed(search.at, "it follows", term=3, leader=[A])
    assert search.at == pytest.approx(1.0 + 3 * REST_MIN_S)


def test_a_leader_that_lasted_ends_the_search_and_one_that_did_not_goes_on_with_it() -> None:
    search = Search([A])
    search.missed(0.0, "no")
    search.found(1.0, 2)
    search.missed(1.0 + REST_MAX_S / 2, "no")
    assert search.at == pytest.approx(1.0 + REST_MAX_S / 2 + 2 * REST_MIN_S)
    search.found(2.0, 2)
    search.missed(3.0, "no")
    assert search.at == pytest.approx(3.0 + REST_MIN_S)


def test_a_client_is_refused_once_every_address_has_refused_it() -> None:
    search, refusal = Search([A, B]), Unauthenticated("no")
    search.missed(0.0, "no", refusal=refusal)
    assert search.refused is None
    search.missed(0.0, "no", refusal=refusal)
    assert search.refused is refusal
    search.found(0.0, 1)
    search.missed(9.0, "no", refusal=refusal)
    assert search.refused is None, "one of them let it in since"


def test_a_wildcard_host_of_the_leader_is_the_host_that_was_asked() -> None:
    search = Search([A, B])
    search.missed(0.0, "it follows", term=1, leader=["tcp://*:7"])
    assert search.address == "tcp://a:7"


def test_one_address_follows_no_news_and_may_become_another_cluster() -> None:
    search = Search([A])
    search.missed(0.0, "it follows", term=1, leader=[B])
    assert search.address == A
    assert all(map(search.is_ours, "xy"))


def test_several_addresses_are_of_one_cluster() -> None:
    search = Search([A, B])
    assert list(map(search.is_ours, "xxy")) == [True, True, False]


def test_what_came_of_each_address_is_told() -> None:
    search = Search([A, B])
    search.missed(0.0, "no connection")
    search.missed(0.0, "it follows")
    assert search.state == f"{A}: no connection; {B}: it follows"
