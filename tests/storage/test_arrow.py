"""Arrow is an extra: without pyarrow, everything else works and the error says what to install."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from penstock.storage.arrow import is_fast, kit
from penstock.storage.embedded import Log
from penstock.storage.errors import MissingLibrary


def test_without_pyarrow_the_error_names_the_extra_and_the_rest_works(tmp_path: Path, monkeypatch):
    is_fast()  # decides once per process; not here
    kit.cache_clear()
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    with Log(tmp_path / "log") as log:
        log.append([b"one", b"two"])
        with pytest.raises(MissingLibrary, match=r"penstock\[arrow\]"):
            next(log.batches("arrow"))
        log.seek("earliest")
        assert [record.value for record in log] == [b"one", b"two"]
