"""The project's own source text, for the tests that read it: layers, tidiness, documents.

Idea: one walk over the tree, one parse per file, and each module known by the name the wheel gives it
(`storage/log.py` is `penstock.storage.log`). Tests ask questions; they do not open files themselves.
Must not import penstock: what is checked here has to hold for code that does not even load.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("storage", "transport", "broker", "clients", "gateway", "spark", "adapters", "penstock")
"""The floors from the bottom up; `penstock` is the face. Everything shipped lives in one of them, but for the doors."""
DOORS = ("kombu_penstock.py", "pyspark_penstock.py")
"""Modules of the wheel outside of `penstock`, where other tools look for them."""

HIDDEN = {"__pycache__", "build", "dist", "node_modules"}


@dataclass(frozen=True)
class Import:
    """One imported module, as an absolute dotted name, and how it is imported."""

    name: str
    line: int
    relative: bool
    at_load: bool  # runs when the module is loaded: neither in a function nor for the type checker only


@dataclass(frozen=True)
class Source:
    """One Python file: where it is, what the wheel calls it, what is in it."""

    path: Path
    module: str
    is_package: bool

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree. Most of the time of these tests goes into parsing and walking."""
        return list(ast.walk(self.tree))

    @cached_property
    def _imports(self) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
        return sorted(_imports(self.tree), key=lambda found: found[0].lineno)

    @property
    def place(self) -> str:
        return str(self.path.relative_to(ROOT)) if self.path.is_relative_to(ROOT) else str(self.path)

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node

    def imports(self, modules: set[str]) -> Iterator[Import]:
        """Every import; `from package import name` is that submodule where `modules` has one."""
        for node, at_load in self._imports:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(alias.name, node.lineno, False, at_load)
            else:
                base = self._absolute(node)
                for alias in node.names:
                    deeper = f"{base}.{alias.name}"
                    name = deeper if deeper in modules else base
                    yield Import(name, node.lineno, node.level > 0, at_load)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.module if self.is_package else self.module.rpartition(".")[0]
        for _ in range(node.level - 1):
            package = package.rpartition(".")[0]
        return f"{package}.{node.module}" if node.module else package


def dotted(expression: ast.expr) -> str:
    """A name as it is written, `asyncio.sleep`; what is not a name counts as nothing, so `f().close` is `.close`.

    `ast.unparse` says the same, and takes a hundred times as long.
    """
    if isinstance(expression, ast.Attribute):
        return f"{dotted(expression.value)}.{expression.attr}"
    return expression.id if isinstance(expression, ast.Name) else ""


def _imports(tree: ast.Module) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import, and whether it runs when the module is loaded."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
    while waiting:
        node, at_load = waiting.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, at_load
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_typing_only(node):
            at_load = False
        if not isinstance(node, ast.expr):  # an expression has no import
            waiting += [(child, at_load) for child in ast.iter_child_nodes(node)]


def _is_typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and dotted(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def walk_files(*suffixes: str, root: Path = ROOT) -> Iterator[Path]:
    """Files of the project with one of these suffixes, in order; nothing hidden, nothing generated."""
    for directory, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in HIDDEN and "egg-info" not in f)
        for name in sorted(files):
            if name.endswith(suffixes):
                yield Path(directory, name)


def shipped(root: Path = ROOT) -> list[Source]:
    """Every module of the wheel, and the examples that lie among them."""
    inside = [_source(path, root) for folder in FOLDERS for path in walk_files(".py", root=root / folder)]
    return inside + [_source(root / door, root) for door in DOORS if (root / door).exists()]


def all_sources(root: Path = ROOT) -> list[Source]:
    """Every Python file of the project, tests and benchmarks too."""
    return [_source(path, root) for path in walk_files(".py", root=root)]


def _source(path: Path, root: Path) -> Source:
    parts = list(path.relative_to(root).with_suffix("").parts)
    is_package = parts[-1] == "__init__"
    if is_package:
        parts.pop()
    if parts[0] in FOLDERS and parts[0] != "penstock":
        parts.insert(0, "penstock")
    return Source(path, ".".join(parts), is_package)
