"""Objects with two fields of one name are refused, whatever the size of a body, and none holds up the loop."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from penstock.gateway.http import strict_json
from penstock.gateway.http.problems import Refusal
from penstock.gateway.http.strict_json import StrictDecoder, portions
from penstock.gateway.turns import Turns

NAMES = ["a", "b", "json", "v\\u0061l", "val", 'q\\"', "\\\\", "{", "é", ""]


def written(rng: random.Random, depth: int) -> str:
    """Any JSON, with and without objects that have two fields of one name."""
    kind = rng.randrange(6) if depth else rng.randrange(4)
    if kind < 4:
        return ["1.5e3", "null", f'"{rng.choice(NAMES)}"', '"a: [{\\"b\\": 1}, "'][kind]
    space = rng.choice(["", " ", "\n\t"])
    inside = [written(rng, depth - 1) for _ in range(rng.randrange(5))]
    if kind == 4:
        return f"[{space}{f'{space},'.join(inside)}]"
    return "{" + f"{space},".join(f'"{rng.choice(NAMES)}"{space}:{each}' for each in inside) + "}"


def refuses(look: Any) -> bool:
    try:
        look()
    except Refusal:
        return True
    return False


def test_a_large_text_is_judged_as_a_small_one():
    rng, seen = random.Random(7), set[bool]()
    for _ in range(4000):
        text = written(rng, 5)
        small = refuses(lambda text=text: strict_json._check(text))
        assert refuses(lambda text=text: list(portions(text.encode(), {}))) == small, text
        seen.add(small)
    assert seen == {True, False}


class Wanted(msgspec.Struct):
    json: msgspec.Raw = msgspec.Raw(b"")
    more: Any = None


@pytest.mark.parametrize(
    ("body", "turns"),
    [
        (b'{"json":1,"more":[' + b'{"a":1,"b":[]},' * 20_000 + b"1]}", 60),
        (b'{"more": {"json":[' + b'{"a":1,"a":2},' * 20_000 + b'1]}, "json" :\n [1, 2]}', 60),
        (b'{"more":[' + b"1," * 640_000 + b"1]}", 15),
        (b'{"more":"' + b'x\\"' * 64_000 + b'"}', 20),
    ],
)
def test_a_large_body_takes_turns(body: bytes, turns: int):
    taken: list[int] = []

    class Counted(Turns):
        async def turn(self) -> None:
            taken.append(1)

    found = asyncio.run(StrictDecoder(Wanted).decode_in_turns(body, Counted()))
    assert found == msgspec.json.decode(body, type=Wanted)
    assert len(taken) >= turns
    with pytest.raises(Refusal, match="two fields"):
        asyncio.run(StrictDecoder(Wanted).decode_in_turns(body[:-1] + b',"json":1,"json":1}', Counted()))


def test_what_is_the_clients_own_is_passed_over():
    """It is known where it is, and it may be almost all of a body."""
    large = b"[" + b'{"a":1,"a":2},' * 20_000 + b"1]"

    class Never(Turns):
        async def turn(self) -> None:
            raise AssertionError("nothing takes so long")

    for before, behind in ((b'{ "json" : ', b', "more": {"a": 1}}'), (b'{"more":"json","json":', b"}")):
        found = asyncio.run(StrictDecoder(Wanted).decode_in_turns(before + large + behind, Never()))
        assert bytes(found.json) == large
        for name in (b"json", b"more"):
            twice = before + large + b', "more": 1, "' + name + b'": 2' + behind
            with pytest.raises(Refusal, match="two fields"):
                asyncio.run(StrictDecoder(Wanted).decode_in_turns(twice, Turns()))
