"""Every store that is here gives back what was appended to it; one that is not says why."""

from __future__ import annotations

import random
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from penstock.storage.errors import way_to_install

from perf.stores import every_store
from perf.stores.frames import framed, values_of
from perf.stores.in_process import InProcessStore
from perf.stores.native import PROGRAM, NativeStore
from perf.stores.store import Store

VALUES = [random.Random(size).randbytes(size % 300) for size in range(1, 251)]

# A program in the place of a Go or Rust one: the log is one file of frames, and nothing takes any time.
PROGRAM_IN_PYTHON = """#!{python}
import pathlib, sys
command, directory, *rest = sys.argv[1:]
log = pathlib.Path(directory, "log")
if command == "append":
    log.write_bytes(sys.stdin.buffer.read())
    print(1000 * int(rest[0]))
elif command == "read":
    print(500 * len(log.read_bytes()))
else:
    sys.stdout.buffer.write(log.read_bytes())
"""


def usable(store: Store) -> None:
    """Skip what is not here. A native store is not built for a test: that fetches sources and takes a minute."""
    if isinstance(store, NativeStore) and not store.built():
        pytest.skip(f"{store.name} has not been built here; `make bench` does it where its toolchain is")
    if reason := store.absent():
        pytest.skip(f"{store.name} is absent: {reason}")


@pytest.fixture(params=every_store(), ids=lambda store: store.name)
def store(request: pytest.FixtureRequest) -> Store:
    usable(request.param)
    return request.param


def test_what_was_appended_comes_back_in_order(store: Store, tmp_path: Path) -> None:
    for level in sorted(store.durabilities):
        place = tmp_path / level
        place.mkdir()
        assert store.append_ns(place, VALUES, 100, durable=level == "durable") > 0
        assert store.read_ns(place, len(VALUES)) > 0
        assert store.read(place, len(VALUES)) == VALUES


def test_reading_leaves_a_store_as_it_was(store: Store, tmp_path: Path) -> None:
    store.append_ns(tmp_path, VALUES, 100, durable="durable" in store.durabilities)
    assert store.read(tmp_path, 10) == VALUES[:10]
    assert store.read(tmp_path, len(VALUES)) == VALUES


def test_every_store_names_its_versions_where_it_has_any(store: Store) -> None:
    assert all(name and version for name, version in store.versions().items())


def test_the_table_has_the_rows_that_it_repeats() -> None:
    stores = {store.name: store for store in every_store()}
    assert len(stores) >= 10
    checking = {name for name, store in stores.items() if store.checks}
    assert checking == {"penstock.Log", "LevelDB (plyvel)", "queuefka (Go)", "v_queue (Rust)"}
    assert all(store.durabilities and store.durabilities <= {"durable", "written"} for store in stores.values())


def test_a_library_that_is_missing_is_named() -> None:
    class Missing(InProcessStore):
        name, chunk, module, package = "nothing", 1, "penstock_has_no_such_module", "no-such-package"
        appending = reading = None  # pyright: ignore[reportAssignmentType]

    assert Missing().absent() == f"no-such-package is not installed: {way_to_install('bench')}"


# -- programs in other languages ------------------------------------------------------------------


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_PEERS", str(tmp_path / "peers"))
    path = tmp_path / "drive"
    path.mkdir()
    program = path / "main.py"
    program.write_text(PROGRAM_IN_PYTHON.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (path / "lock").write_text('name = "thing"\nversion = "1.2"\n')
    return path


def native(sources: Path, *steps: Sequence[str]) -> NativeStore:
    return NativeStore("Thing", sources, steps, ("thing", "lock", r'version = "(.+)"'))


COPY = ("cp", "main.py", PROGRAM)


def test_a_program_is_driven_through_frames(sources: Path, tmp_path: Path) -> None:
    store = native(sources, COPY)
    assert store.absent() == ""
    assert store.append_ns(tmp_path, [b"ab", b"c", b""], 3, durable=True) == 1000.0
    assert store.read_ns(tmp_path, 3) == 500 * 15 / 3
    assert store.read(tmp_path, 3) == [b"ab", b"c", b""]
    assert store.versions() == {"thing": "1.2"}


def test_a_program_is_built_once_and_anew_when_its_sources_change(sources: Path) -> None:
    assert native(sources, COPY).absent() == ""
    again = native(sources, COPY)
    assert again.built()
    (sources / "main.py").write_text("another")
    assert not native(sources, COPY).built()
    assert sorted(path.name for path in sources.iterdir()) == ["lock", "main.py"]


def test_a_missing_toolchain_makes_it_absent(sources: Path) -> None:
    assert native(sources, ("penstock-has-no-such-tool",)).absent() == (
        "there is no penstock-has-no-such-tool to build it with"
    )


def test_a_build_that_fails_makes_it_absent_with_what_it_said(sources: Path) -> None:
    store = native(sources, ("sh", "-c", "echo begun; echo reading https://here.example/a: no such module >&2; exit 3"))
    assert store.absent() == "sh could not build it: reading ... no such module"
    assert not store.built()
    assert list((sources.parent / "peers").iterdir()) == []


# -- frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_frames_come_back_however_they_are_cut(step: int) -> None:
    stream = b"".join(map(framed, VALUES[:30]))
    parts = iter([stream[at : at + step] for at in range(0, len(stream), step)])
    assert list(values_of(lambda _: next(parts, b""))) == VALUES[:30]


def test_a_frame_cut_off_by_the_end_is_none() -> None:
    parts = iter([framed(b"whole") + framed(b"torn")[:-1]])
    assert list(values_of(lambda _: next(parts, b""))) == [b"whole"]
