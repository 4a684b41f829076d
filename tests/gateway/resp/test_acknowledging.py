"""XACKs that follow each other are settled together, and each is answered as if it had run alone."""

from __future__ import annotations

import random
from typing import Any

import pytest

pytest.importorskip("redis", reason="needs the client redis")


def delivered(resp: Any, key: str, count: int) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """What a consumer gets, with either version of the protocol."""
    answer = resp.xreadgroup("g", "a", {key: ">"}, count=count)
    return answer[key.encode()][0] if isinstance(answer, dict) else answer[0][1]


@pytest.mark.parametrize("transaction", [False, True], ids=["pipeline", "transaction"])
def test_each_of_many_acknowledgements_is_counted_as_if_it_had_run_alone(resp, key, seed, transaction):
    dice, keys, texts, open_ = random.Random(seed), [key, f"{key}-b"], dict[str, list[bytes]](), dict[str, set[bytes]]()
    for each in keys:
        filling = resp.pipeline(transaction=False)
        for _ in range(60):
            filling.xadd(each, {"value": "v"})
        texts[each] = [*filling.execute(), b"5-7", b"99-10000"]
        resp.xgroup_create(each, "g", 0)
        open_[each] = {id_ for id_, _ in delivered(resp, each, 50)}
    for _ in range(12):
        pipeline, wanted = resp.pipeline(transaction=transaction), list[int | str]()
        for _ in range(dice.randrange(1, 30)):
            at, group = dice.choice(keys), dice.choices(["g", "none"], [9, 1])[0]
            begin = dice.randrange(len(texts[at]))
            named = dice.sample(texts[at], dice.randrange(1, 4)) + texts[at][begin : begin + dice.choice([0, 9])]
            if dice.random() < 0.05:
                named.append(b"bad")
            pipeline.xack(at, group, *named)
            done = open_[at] & set(named) if group == "g" and b"bad" not in named else set()
            open_[at] -= done
            wanted.append("Invalid stream ID" if b"bad" in named else len(done))
        answered = pipeline.execute(raise_on_error=False)
        assert [each if isinstance(each, int) else str(each)[:17] for each in answered] == wanted
        assert [resp.xpending(each, "g")["pending"] for each in keys] == [len(open_[each]) for each in keys]
