"""The asyncio clients are what `.ci/twins.py` makes of those for threads, and it makes what is meant."""

from __future__ import annotations

import ast
import runpy

import pytest
from support.sources import ROOT

SCRIPT = runpy.run_path(str(ROOT / ".ci/twins.py"))
TWINS, BY_HAND, twin = SCRIPT["TWINS"], SCRIPT["BY_HAND"], SCRIPT["twin"]
HEAD = '"""Of threads."""\n\nfrom __future__ import annotations\n\n'


@pytest.mark.parametrize("source", TWINS)
def test_a_twin_is_current(source):
    made = twin((ROOT / source).read_text(), source)
    assert (ROOT / TWINS[source]).read_text() == made, f"{TWINS[source]} is stale: run `make fmt`"


@pytest.mark.parametrize("source", TWINS)
def test_a_change_of_a_source_shows_in_its_twin(source):
    text = (ROOT / source).read_text()
    assert twin(text + "\n\nCHANGED = 1\n", source) != (ROOT / TWINS[source]).read_text()


@pytest.mark.parametrize("source", TWINS)
def test_the_first_line_says_where_to_change_it(source):
    first, *_ = (ROOT / TWINS[source]).read_text().splitlines()
    assert source in first
    assert "make fmt" in first


@pytest.mark.parametrize("source", [*TWINS, *BY_HAND])
def test_what_the_tables_name_exists(source):
    assert (ROOT / source).exists()
    assert (ROOT / {**TWINS, **BY_HAND}[source]).exists()


RULES = [
    # what waits is awaited, and who awaits is async
    ("class Client:\n    def ping(self) -> float:\n        return self._driver.run(1)\n",
     "class AsyncClient:\n    async def ping(self) -> float:\n        return await self._driver.run(1)\n"),
    ("class Client:\n    def why(self) -> str:\n        return self._driver.run(1).why\n",
     "class AsyncClient:\n    async def why(self) -> str:\n        return (await self._driver.run(1)).why\n"),
    ("class Client:\n    def first(self) -> int:\n        return max(self._driver.run(1)[0], 1)\n",
     "class AsyncClient:\n    async def first(self) -> int:\n        return max((await self._driver.run(1))[0], 1)\n"),
    ("class Client:\n    def a(self) -> int:\n        return self.b()\n\n"
     "    def b(self) -> int:\n        return self.c()\n\n"
     "    def c(self) -> int:\n        return self._driver.run(1)\n",
     "class AsyncClient:\n    async def a(self) -> int:\n        return await self.b()\n\n"
     "    async def b(self) -> int:\n        return await self.c()\n\n"
     "    async def c(self) -> int:\n        return await self._driver.run(1)\n"),
    # what does not wait stays
    ("class Client:\n    def steps(self) -> int:\n        return self._core.close(self.url)\n",
     "class AsyncClient:\n    def steps(self) -> int:\n        return self._core.close(self.url)\n"),
    ("class Client:\n    def locked(self) -> None:\n        with self._lock:\n            self.x = 1\n",
     "class AsyncClient:\n    def locked(self) -> None:\n        with self._lock:\n            self.x = 1\n"),
    # blocks
    ("class Client:\n    def __enter__(self) -> Client:\n        return self\n",
     "class AsyncClient:\n    async def __aenter__(self) -> AsyncClient:\n        return self\n"),
    ("def f() -> None:\n    with Transaction(1, 2) as t:\n        t.x = 1\n",
     "async def f() -> None:\n    async with AsyncTransaction(1, 2) as t:\n        t.x = 1\n"),
    # a verb that opens something
    ("class Client:\n    @property\n    def x(self) -> int:\n        return 1\n\n"
     "    def worker(self) -> Worker:\n        return self._driver.run_on(1)\n",
     "class AsyncClient:\n    @property\n    def x(self) -> int:\n        return 1\n\n"
     "    @opens\n    async def worker(self) -> AsyncWorker:\n        return await self._driver.run(1)\n"),
    # letters of more than one byte before what changes
    ("class Client:\n    def ping(self) -> str:\n        return 'ä' + self._driver.run('ö').x\n",
     'class AsyncClient:\n    async def ping(self) -> str:\n        return "ä" + (await self._driver.run("ö")).x\n'),
    # words in docstrings
    ('def f() -> None:\n    """Leaving a `with` block of a Client."""\n',
     'def f() -> None:\n    """Leaving an `async with` block of a AsyncClient."""\n'),
]  # fmt: skip
"""What is read and what is written of it."""


@pytest.mark.parametrize(("text", "wanted"), RULES)
def test_a_rule(text, wanted):
    made = twin(HEAD + text, "clients/client.py")
    assert made.partition("import annotations\n")[2].strip() == wanted.strip()


IMPORTS = [
    ("clients/client.py", "from .errors import X", "from ..errors import X"),
    ("clients/client.py", "from ..storage.record import X", "from ...storage.record import X"),
    ("clients/client.py", "from .producer import Producer", "from .producer import AsyncProducer"),
    ("clients/client.py", "from .connection.driver import Driver", "from .driver import AsyncDriver"),
    ("clients/queues/client.py", "from ..connection.driver import Driver", "from .driver import AsyncDriver"),
    ("clients/queues/client.py", "from .verbs import X", "from ..queues.verbs import X"),
    ("clients/worker.py", "from .working.iterating import each_task", "from .iterating import each_task"),
    ("clients/client.py", "from .queues.client import QueueClient", "from .queue_client import AsyncQueueClient"),
]


@pytest.mark.parametrize(("source", "line", "wanted"), IMPORTS)
def test_an_import(source, line, wanted):
    name = line.rpartition(" ")[2]
    made = twin(f"{HEAD}{line}\n\n{name}()\n", source)
    assert wanted in made.splitlines()


def test_an_import_over_many_lines_is_one_import():
    made = twin(HEAD + "from .errors import (\n    X,\n    Y,\n)\n\nX(Y)\n", "clients/client.py")
    ast.parse(made)
    assert "from ..errors import X, Y\n" in made


def test_a_class_whose_twin_has_no_home_is_refused():
    with pytest.raises(KeyError):
        twin(HEAD + "from .elsewhere import Client\n\nClient()\n", "clients/client.py")
