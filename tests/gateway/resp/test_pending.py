"""What a consumer has not acknowledged, given again in answers of a bounded size."""

from __future__ import annotations

from .test_groups import get, ids


def test_what_a_consumer_has_comes_in_answers_of_some_bytes(resp, key):
    """A consumer with gigabytes took as much of the gateway's memory."""
    for _ in range(20):
        resp.xadd(key, {"value": b"x" * (1 << 20)})
    resp.xgroup_create(key, "g", 0)
    every = get(resp, "a", key)
    while some := get(resp, "a", key):
        every += some
    assert len(every) == 20
    again = ids(resp.xreadgroup("g", "a", {key: "0"}))
    assert again == every[: len(again)]
    assert 16 <= len(again) < 20
    assert ids(resp.xreadgroup("g", "a", {key: again[-1]})) == every[len(again) :]
    following, some, _ = resp.xautoclaim(key, "g", "b", 0, "0-0", count=100)
    assert [id_ for id_, _ in some] == every[: len(some)]
    assert (16 <= len(some) < 20, following) == (True, every[len(some)])
