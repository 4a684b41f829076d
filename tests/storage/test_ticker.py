"""What is done again and again in the background, of which no caller waits for the result."""

from __future__ import annotations

import threading

from penstock.storage.embedded import Log
from support.files import RecordingFiles


def test_a_flush_that_failed_is_tried_again_and_its_error_is_nobodys_then() -> None:
    files, flushed = RecordingFiles(), threading.Event()
    with Log("/log", flush_seconds=0.001, commit="written", files=files) as log:
        original = log._publisher.publish

        def publish() -> None:
            original()
            flushed.set()

        log._publisher.publish = publish
        files.fail("write", 1)
        log.write(b"left alone")
        assert flushed.wait(10)
        assert log._ticker is not None
        log._ticker.stop()
        assert log.append(b"after") == 1
        assert list(log.values()) == [b"left alone", b"after"]
