"""A channel removes logs in an order that no power cut turns round."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from penstock import Channel
from penstock.storage.files import Files


def test_what_is_done_goes_only_once_its_items_stay_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process removed them, and was killed before that was durable."""
    with Channel(tmp_path / "whole") as channel:
        channel.put(b"item")
        channel.get()
        channel.task_done()
        shutil.copytree(tmp_path / "whole", tmp_path / "left")
    items, done = tmp_path / "left/items", tmp_path / "left/done"
    (log,) = (each.name for each in items.iterdir() if each.name.isdigit())
    (items / log).rename(items / f"removed-{int(log)}")
    steps: list[str] = []
    rename, sync, unlink = Files.rename_dir, Files.sync_dir, Files.unlink
    monkeypatch.setattr(Files, "rename_dir", lambda self, *at: (steps.append(f"rename {at[0]}"), rename(self, *at)))
    monkeypatch.setattr(Files, "sync_dir", lambda self, at: (steps.append(f"sync {at}"), sync(self, at)))
    monkeypatch.setattr(Files, "unlink", lambda self, at: (steps.append(f"unlink {at}"), unlink(self, at)))
    Channel(tmp_path / "left").close()
    assert not [each for each in done.iterdir() if each.name.isdigit()]
    renamed, emptied = steps.index(f"rename {done}/{log}"), [each.startswith(f"unlink {done}") for each in steps]
    assert steps.index(f"sync {items}") < renamed
    assert f"sync {done}" in steps[renamed : emptied.index(True)], "a name that came back would lead to half a log"
