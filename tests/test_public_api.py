"""The surface that people build on: every name resolves, is documented, and stands in `tests/golden/public_api.txt`.

When a change of the surface is meant: `PENSTOCK_REWRITE=1 make test ARGS=tests/test_public_api.py`, and read the diff.
"""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_args, get_type_hints, is_typeddict

import msgspec
import penstock
import penstock.aio
import penstock.errors
import pytest
from penstock.broker.engine.tables.queues.settings import QueueSettings
from penstock.broker.engine.tables.settings import TopicSettings
from penstock.clients.tasks import AsyncTaskFunction, TaskFunction
from support.sources import ROOT

GOLDEN = ROOT / "tests/golden/public_api.txt"
REWRITE = bool(os.environ.get("PENSTOCK_REWRITE"))  # read before the environment is cleared for the tests
MODULES = ["penstock", "penstock.aio", "penstock.errors", "penstock.testing"]
PACKAGES = [f"penstock.{name}" for name in ("storage", "transport", "broker", "broker.engine", "clients")]
TWINS = [
    ("Client", "AsyncClient"),
    ("Producer", "AsyncProducer"),
    ("Consumer", "AsyncConsumer"),
    ("TopicsConsumer", "AsyncTopicsConsumer"),
    ("Worker", "AsyncWorker"),
    ("Task", "AsyncTask"),
    ("Job", "AsyncJob"),
    ("Staging", "AsyncStaging"),
    ("Transaction", "AsyncTransaction"),
]
VALUES = {"__version__"}


def public(thing: Any) -> list[str]:
    """Names that a user may use: what `__all__` says, or what has no underscore."""
    names = thing.__all__ if isinstance(thing, ModuleType) else [n for n in dir(thing) if not n.startswith("_")]
    return sorted(names)


def objects(module: str) -> Iterator[tuple[str, Any]]:
    home = importlib.import_module(module)
    for name in public(home):
        yield f"{module}.{name}", getattr(home, name)


def members(name: str, kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of a public class, where they were written by us."""
    for member in public(kind):
        owner = next(base for base in kind.__mro__ if member in base.__dict__)
        found = inspect.getattr_static(kind, member)
        described = callable(getattr(found, "__func__", found)) or isinstance(found, property)
        if owner.__module__.startswith("penstock") and described:
            yield f"{name}.{member}", found


@pytest.mark.parametrize("module", MODULES + PACKAGES)
def test_every_name_of_all_exists_once(module):
    home = importlib.import_module(module)
    assert len(home.__all__) == len(set(home.__all__))
    assert [name for name in home.__all__ if not hasattr(home, name)] == []


def test_the_face_has_all_its_parts_without_another_import():
    """A lazy name must work in a process that imported nothing but penstock."""
    code = "import penstock; print([name for name in penstock.__all__ if not hasattr(penstock, name)])"
    assert _python(code) == "[]"


def test_importing_the_face_loads_nothing_heavy():
    code = "import sys, penstock; print(sorted({'zmq', 'numpy', 'pyarrow', 'click', 'asyncio'} & set(sys.modules)))"
    assert _python(code) == "[]"


def test_a_client_of_a_unix_socket_does_not_load_zeromq():
    code = (
        "import sys; from penstock.clients.opening import open_channel; "
        "open_channel('unix:///nowhere/s', clock=lambda: 0.0).close(); print('zmq' in sys.modules)"
    )
    assert _python(code) == "False"


def _python(code: str) -> str:
    import subprocess
    import sys

    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_each_public_object_has_one_name():
    """Two public names for one thing would have to be kept in step for ever; `Error` is the root and may have two."""
    homes: dict[int, list[str]] = {}
    for module in MODULES:
        for name, thing in objects(module):
            if callable(thing) and not name.endswith(".Error"):
                homes.setdefault(id(thing), []).append(name)
    assert [names for names in homes.values() if len(names) > 1] == []


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_documented(module):
    missing = []
    for name, thing in objects(module):
        if name.rpartition(".")[2] in VALUES or not (inspect.isclass(thing) or inspect.isroutine(thing)):
            continue
        missing += [name] if not inspect.getdoc(thing) else []
        for member, found in members(name, thing) if inspect.isclass(thing) else ():
            missing += [member] if not inspect.getdoc(found) else []
    assert missing == []


def parameters(thing: Any) -> list[str]:
    """Names that a caller gives; those of a struct are its public fields."""
    thing = getattr(thing, "__func__", thing)
    if isinstance(thing, property) or is_typeddict(thing):  # which the verbs that take it describe
        return []
    given = inspect.signature(thing).parameters.values()
    return [
        p.name for p in given if p.name not in ("self", "cls") and p.name[0] != "_" and p.kind is not p.VAR_POSITIONAL
    ]


def names(parameter: str, text: str) -> bool:
    """Whether help names a parameter: in backticks, or at the head of a line of its own, alone or beside others."""
    return bool(re.search(rf"`[^`]*\b{parameter}\b[^`]*`|^ *(\w+, )*{parameter}(, \w+)*: ", text, re.MULTILINE))


def described(name: str, thing: Any, beside: type | None = None) -> str:
    """The docstring; where it begins with "As `other`", also that of the other, of the same class or named in full."""
    text = inspect.getdoc(thing) or ""
    other = re.match(r"As `([\w.]+)`", text)
    if other is None:
        return text
    home, _, member = other[1].rpartition(".")
    found = getattr(importlib.import_module(home) if home == "penstock" else getattr(penstock, home, beside), member)
    return text + described(name, found, beside)


def unnamed(name: str, thing: Any) -> Iterator[str]:
    """Parameters that help does not name, of a function, or of a class, its members and what makes it."""
    if not inspect.isclass(thing):
        yield from (f"{name}({p})" for p in parameters(thing) if not names(p, described(name, thing)))
        return
    text = "\n".join(filter(None, map(inspect.getdoc, (thing, thing.__init__))))
    if "Made by" not in text:
        yield from (f"{name}({p})" for p in parameters(thing) if not names(p, text))
    for member, found in members(name, thing):
        yield from (f"{member}({p})" for p in parameters(found) if not names(p, described(member, found, thing)))


@pytest.mark.parametrize("module", MODULES)
def test_help_names_each_parameter(module):
    kinds = (name_and_thing for name_and_thing in objects(module) if callable(name_and_thing[1]))
    missing = [
        each
        for name, thing in kinds
        if not (inspect.isclass(thing) and issubclass(thing, Exception))
        for each in unnamed(name, thing)
    ]
    assert missing == []


@pytest.mark.parametrize("kind", [TaskFunction, AsyncTaskFunction])
def test_help_of_task_functions_names_each_parameter(kind):
    missing = unnamed(kind.__name__, kind)
    assert [each for each in missing if not each.endswith(("(args)", "(kwargs)"))] == []  # those of the function


@pytest.mark.parametrize("client", [penstock.Client, penstock.aio.AsyncClient])
@pytest.mark.parametrize(("verb", "settings"), [("create_topic", TopicSettings), ("set_queue", QueueSettings)])
def test_help_names_each_setting(client, verb, settings):
    text = inspect.getdoc(getattr(client, verb)) or ""
    assert [name for name in settings.__struct_fields__ if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(
    ("given", "settings"), [(penstock.TopicOptions, TopicSettings), (penstock.QueueOptions, QueueSettings)]
)
def test_the_types_of_settings_are_those_that_the_broker_knows(given, settings):
    known = {field.name: field.type for field in msgspec.structs.fields(settings)}
    typed = get_type_hints(given)
    assert set(typed) == set(known)
    for name, kind in known.items():
        parsed = name.endswith("_bytes") or (name.endswith("_s") and not name.endswith("_per_s"))
        wanted = set(get_args(kind)) or {kind}
        found = set(get_args(typed[name])) or {typed[name]}
        if parsed:
            assert str in found, f"{name} may be text"
            assert (type(None) in found) == (type(None) in wanted), name
        else:
            assert found == wanted, name


def test_a_parameter_that_help_does_not_name_is_noticed():
    def verb(one, two, three):
        """Do `one` thing.

        three: of them.
        """

    def other(one, four):
        """As `verb`."""

    class Kind:
        """Takes nothing."""

    Kind.verb = staticmethod(verb)
    assert list(unnamed("verb", verb)) == ["verb(two)"]
    assert [p for p in parameters(other) if not names(p, described("other", other, Kind))] == ["four"]


def test_every_error_is_public_and_has_a_code_of_its_own():
    """Those of the command line end a command; NotCached, UnsafeCut and those of a replica never leave a process."""
    for package in (*PACKAGES, "penstock.broker.replica"):
        for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    shipped = {kind for kind in _below(penstock.Error) if kind.__module__.startswith(tuple(PACKAGES))}
    named = {getattr(penstock.errors, name) for name in penstock.errors.__all__}
    inside = {"NotCached", "PromisesLost", "ReplicaBroken", "ReplicaDamaged", "StateDiffers", "UnsafeCut"}
    assert {kind.__name__ for kind in shipped - named} == inside
    codes = [kind.__dict__.get("code") for kind in shipped]
    assert None not in codes
    assert len(codes) == len(set(codes))


def _below(kind: type) -> Iterator[type]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


def verbs(kind: type) -> dict[str, list[str]]:
    """Method names with the names of their parameters; context managers and iteration aside."""
    found = {}
    for name in public(kind):
        member = inspect.getattr_static(kind, name)
        found[name] = list(inspect.signature(member).parameters)[1:] if inspect.isfunction(member) else []
    return found


@pytest.mark.parametrize(("name", "twin"), TWINS)
def test_the_async_twin_has_the_same_names_and_parameters(name, twin):
    assert verbs(getattr(penstock.aio, twin)) == verbs(getattr(penstock, name))


def surface() -> Iterator[str]:
    for module in MODULES:
        for name, thing in objects(module):
            if inspect.isclass(thing) and not issubclass(thing, Exception):
                fields = thing.__annotations__ if is_typeddict(thing) else getattr(thing, "__struct_fields__", ())
                yield f"class {name}({', '.join(fields)})"
                for member, found in members(name, thing):
                    yield f"    {member.rpartition('.')[2]}{_parameters(found)}"
            elif inspect.isroutine(thing):
                yield f"def {name}{_parameters(thing)}"
            else:
                yield name


def _parameters(found: Any) -> str:
    found = getattr(found, "__func__", found)
    if isinstance(found, property):
        return ""
    parts = []
    for parameter in inspect.signature(found).parameters.values():
        mark = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in "".join(parts):
            parts.append("*")
        default = "" if parameter.default is parameter.empty else "="
        parts.append(f"{mark}{parameter.name}{default}")
    return f"({', '.join(parts)})"


def test_the_surface_is_the_one_that_was_agreed_on():
    now = "\n".join(surface()) + "\n"
    if REWRITE:
        GOLDEN.write_text(now)
    assert now == GOLDEN.read_text()
