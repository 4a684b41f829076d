"""Syncs that threads share; the rest is in test_log_threads.py."""

from __future__ import annotations

from penstock.storage.embedded import Log
from support.files import RecordingFiles


def test_what_is_durable_is_not_synced_again() -> None:
    files = RecordingFiles()
    with Log("/log", files=files) as log:
        log.append(b"one")
        syncs = files.calls["sync"]
        assert log.flush() == log.sync() == 1
        assert files.calls["sync"] == syncs
        log.append(b"two")
        assert files.calls["sync"] == syncs + 1
