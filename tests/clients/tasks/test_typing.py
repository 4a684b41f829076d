"""What a type checker makes of task functions: wrong calls are errors, results have the function's type.

Pyright reads `SAMPLE` beside the tree as the wheel lays it out (support/typed.py).
"""

from __future__ import annotations

from support.typed import check_sample

SAMPLE = """
from datetime import datetime

import penstock

app = penstock.Tasks("mem://x")

@app.task(queue="mail", retry=penstock.Retry(max_attempts=3), timeout="5s", key=lambda to, copies=0: to, priority=3)
def mail(to: str, copies: int = 0) -> list[str]: ...

@app.task()
async def fetch(url: str, *, depth: int) -> bytes: ...

@app.task
def bare(number: int) -> float: ...

@app.task
async def bare_async(number: int) -> str: ...

NOON = datetime(2026, 1, 1)

reveal_type(mail("a"))  # is list[str]
reveal_type(mail.send("a"))  # is Job[list[str]]
reveal_type(mail.send("a", copies=2).result())  # is list[str]
reveal_type(mail.send_in(5, "a", 1).result(timeout=3))  # is list[str]
reveal_type(mail.send_at(NOON, "a"))  # is Job[list[str]]
reveal_type(mail.job("mail-0-1").result())  # is list[str]
reveal_type(fetch.send("u", depth=1).result())  # is bytes
reveal_type(bare.send(1).result())  # is float
reveal_type(bare(1))  # is float
reveal_type(bare_async.send(1).result())  # is str

async def on_a_loop() -> None:
    reveal_type(await fetch("u", depth=1))  # is bytes
    reveal_type(await (await fetch.aio.send("u", depth=1)).result())  # is bytes
    reveal_type(await mail.aio.send_in(1, "a"))  # is AsyncJob[list[str]]
    reveal_type(await mail.aio.job("mail-0-1").result())  # is list[str]
    await mail.aio.send(1)  # wrong
    await mail.aio.send_at(NOON)  # wrong

mail.send(1)  # wrong
mail.send()  # wrong
mail.send("a", 1, 2)  # wrong
mail.send("a", cc=1)  # wrong
mail(1)  # wrong
mail.send_in("a")  # wrong
mail.send_in(object(), "a")  # wrong
mail.send_at("noon", "a")  # wrong
fetch.send("u")  # wrong
fetch.send("u", 1)  # wrong
bare.send("1")  # wrong
bare_async.send(None)  # wrong
app.task(queue=1)  # wrong
app.task(retries=3)  # wrong
number: int = mail.send("a").result()  # wrong
"""


def test_calls_are_checked_and_results_have_their_type(tmp_path):
    check_sample(tmp_path, SAMPLE)
