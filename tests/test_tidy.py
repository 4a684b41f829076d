"""Style by numbers (CONTRIBUTING.md), enforced on every file of the tree.

Each rule is a function from one source to the lines that break it. The last tests break each rule on purpose.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sources import ROOT, Source, all_sources, dotted, shipped, walk_files

FUNCTION_LINES = 70
FILE_LINES = 500
LINE_WIDTH = 120
TELLING = ("print_exc", "print_exception", "crashed")
BINS = {"utils", "util", "common", "helpers", "helper", "misc"}

# Assembled, so that this file does not contain what it looks for.
PLACES = re.compile(r"(?<![\w.])/(?:Users|workspace|work|root)" + r"/[\w.-]+")
LATER = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")


def long_functions(source: Source) -> Iterator[str]:
    for function in source.functions():
        first = function.body[1] if ast.get_docstring(function) and len(function.body) > 1 else function.body[0]
        lines = (function.end_lineno or first.lineno) - first.lineno + 1
        if lines > FUNCTION_LINES:
            yield f"{source.place}:{function.lineno}: {function.name} has {lines} lines, {FUNCTION_LINES} at most"


def long_files(source: Source) -> Iterator[str]:
    if (lines := source.text.count("\n")) > FILE_LINES:
        yield f"{source.place}: {lines} lines, {FILE_LINES} at most"


def wide_lines(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if len(line) > LINE_WIDTH:
            yield f"{source.place}:{number}: {len(line)} characters, {LINE_WIDTH} at most"


def modules_without_a_word(source: Source) -> Iterator[str]:
    if source.text.strip() and not ast.get_docstring(source.tree):
        yield f"{source.place}: opens without a docstring that says its idea and contract"


def things_for_later(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if LATER.search(line):
            yield f"{source.place}:{number}: {line.strip()}"


def pickles(source: Source) -> Iterator[str]:
    for found in source.imports(set()):
        if found.name.partition(".")[0] in {"pickle", "cloudpickle", "dill", "shelve", "marshal"}:
            yield f"{source.place}:{found.line}: imports {found.name}"


def silenced_errors(source: Source) -> Iterator[str]:
    """Nothing catches everything and says nothing: a broad handler raises, or uses what it caught."""
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield f"{source.place}:{node.lineno}: bare except"
            elif _is_broad(node.type) and not _raises_or_tells(node):
                yield f"{source.place}:{node.lineno}: catches {ast.unparse(node.type)} and says nothing"
        elif isinstance(node, ast.Call) and dotted(node.func).endswith("suppress"):
            if any(_is_broad(argument) for argument in node.args):
                yield f"{source.place}:{node.lineno}: suppresses everything"


def _is_broad(kind: ast.expr) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(dotted(one) in ("Exception", "BaseException") for one in kinds)


def _raises_or_tells(handler: ast.ExceptHandler) -> bool:
    inside = [node for statement in handler.body for node in ast.walk(statement)]
    used = any(isinstance(node, ast.Name) and node.id == handler.name for node in inside)
    told = any(isinstance(node, ast.Call) and dotted(node.func).endswith(TELLING) for node in inside)
    return used or told or any(isinstance(node, ast.Raise) for node in inside)


SKIPS = ("pytest.skip", "pytest.importorskip", "pytest.mark.skipif")


def skips_without_reason(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and dotted(node) in ("pytest.mark.skip", "pytest.mark.xfail"):
            if not _called_with_reason(source.tree, node):
                yield f"{source.place}:{node.lineno}: {ast.unparse(node)} without a reason"
        elif isinstance(node, ast.Call) and dotted(node.func) in SKIPS:
            if not any(keyword.arg == "reason" for keyword in node.keywords) and not _sentence(node):
                yield f"{source.place}:{node.lineno}: {ast.unparse(node.func)} without a reason"


def _called_with_reason(tree: ast.Module, mark: ast.Attribute) -> bool:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.func is mark]
    return any(keyword.arg == "reason" for call in calls for keyword in call.keywords)


def _sentence(call: ast.Call) -> bool:
    return dotted(call.func) == "pytest.skip" and bool(call.args)


def sleeping_tests(source: Source) -> Iterator[str]:
    if source.module.startswith("tests"):
        for node in source.nodes:
            if isinstance(node, ast.Call) and dotted(node.func) in ("time.sleep", "asyncio.sleep", "sleep"):
                if ast.unparse(node) != "asyncio.sleep(0)":
                    yield f"{source.place}:{node.lineno}: sleeps; wait for what it is about"


def nameless_bins(source: Source) -> Iterator[str]:
    if source.path.stem in BINS:
        yield f"{source.place}: a helper lives with its only user, or gets a named module"


RULES = [
    long_functions,
    long_files,
    wide_lines,
    modules_without_a_word,
    things_for_later,
    pickles,
    silenced_errors,
    skips_without_reason,
    sleeping_tests,
    nameless_bins,
]


@pytest.fixture(scope="module")
def broken() -> dict[str, list[str]]:
    """What breaks each rule. One pass for all of them: most of the time goes into parsing the tree."""
    found: dict[str, list[str]] = {rule.__name__: [] for rule in RULES}
    for source in all_sources():
        for rule in RULES:
            found[rule.__name__] += rule(source)
    return found


@pytest.mark.parametrize("rule", [rule.__name__ for rule in RULES])
def test_the_tree_has_no(rule, broken):
    assert broken[rule] == []


def test_no_text_names_a_place_on_somebodys_machine():
    suffixes = (".py", ".md", ".toml", ".txt", ".json", "Makefile")
    files = [*walk_files(*suffixes), *filter(Path.is_file, ROOT.glob(".ci/*")), ROOT / ".gitignore"]
    files += walk_files(".py", root=ROOT / ".ci/site")
    assert [f"{path.relative_to(ROOT)}: {hit}" for path in files for hit in PLACES.findall(path.read_text())] == []


def test_every_folder_is_on_the_map():
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and _is_ours(path)}
    on_the_map = set(re.findall(r"^\s{4}(\w+)/", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert folders - on_the_map == set()
    assert on_the_map - folders == set()


def test_every_package_and_door_of_the_tree_is_in_the_wheel():
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    sources = [source for source in shipped() if not source.module.startswith("penstock.spark.examples")]
    packages = {s.module if s.is_package else s.module.rpartition(".")[0] for s in sources}
    assert packages - {""} == set(wheel["packages"])
    assert {source.module for source in sources if "." not in source.module} - {"penstock"} == set(wheel["py-modules"])


def folders_without_sources(root: Path) -> list[str]:
    """Folders of tests below `root` that no folder of sources has the name of."""
    folders = {path.parent.relative_to(root / "tests") for path in (root / "tests").rglob("test_*.py")} - {Path()}
    stands_for = {str(each): root / str(each).replace("face", "penstock", 1) for each in folders}
    return sorted(name for name, sources in stands_for.items() if not any(sources.glob("*.py")))


def test_every_folder_of_tests_stands_for_a_folder_of_sources(tmp_path):
    assert folders_without_sources(ROOT) == []
    for name in ("storage/log.py", "penstock/cli/a.py", "tests/storage/test_log.py", "tests/face/cli/test_a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert folders_without_sources(tmp_path) == []
    (tmp_path / "tests/storage/parts").mkdir()
    (tmp_path / "tests/storage/parts/test_log.py").touch()
    assert folders_without_sources(tmp_path) == ["storage/parts"]


def _is_ours(folder: Path) -> bool:
    hidden = folder.name.startswith(".") or folder.name.endswith("egg-info") or folder.name in ("build", "dist")
    return not hidden and any(folder.rglob("*.py"))


BREAKS = [
    (long_functions, "def f():\n" + "    x = 1\n" * (FUNCTION_LINES + 1)),
    (long_files, "x = 1\n" * (FILE_LINES + 1)),
    (wide_lines, "x = '" + "y" * LINE_WIDTH + "'\n"),
    (modules_without_a_word, "x = 1\n"),
    (things_for_later, "# TO" + "DO: the rest\n"),
    (pickles, "from pickle import loads\n"),
    (silenced_errors, "try:\n    x()\nexcept:\n    pass\n"),
    (silenced_errors, "try:\n    x()\nexcept Exception as e:\n    pass\n"),
    (silenced_errors, "try:\n    x()\nexcept (OSError, BaseException):\n    y = 1\n"),
    (silenced_errors, "with contextlib.suppress(Exception):\n    x()\n"),
    (skips_without_reason, "@pytest.mark.skip\ndef test_x(): ...\n"),
    (skips_without_reason, "pytest.skip()\n"),
    (skips_without_reason, "pytest.importorskip('pyarrow')\n"),
    (skips_without_reason, "@pytest.mark.skipif(True)\ndef test_x(): ...\n"),
    (sleeping_tests, "time.sleep(1)\n"),
]
KEEPS = [
    (long_functions, "def f():\n    '''" + "word\n" * 100 + "'''\n    return 1\n"),
    (silenced_errors, "try:\n    x()\nexcept Exception as e:\n    tell(e)\n"),
    (silenced_errors, "try:\n    x()\nexcept BaseException:\n    traceback.print_exc()\n"),
    (silenced_errors, "try:\n    x()\nexcept KeyError:\n    pass\n"),
    (skips_without_reason, "pytest.skip('no node here')\n"),
    (skips_without_reason, "@pytest.mark.skip(reason='slow disk')\ndef test_x(): ...\n"),
]


@pytest.mark.parametrize(("rule", "text"), BREAKS)
def test_a_source_that_breaks_the_rule_is_caught(rule, text, tmp_path):
    (tmp_path / "made_up.py").write_text(text)
    assert list(rule(Source(tmp_path / "made_up.py", "tests.made_up", False)))


@pytest.mark.parametrize(("rule", "text"), KEEPS)
def test_a_source_that_keeps_the_rule_passes(rule, text, tmp_path):
    (tmp_path / "made_up.py").write_text(text)
    assert list(rule(Source(tmp_path / "made_up.py", "tests.made_up", False))) == []
