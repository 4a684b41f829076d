"""A plugin for the tests of redis-py: topics are deleted by their names, as the gateway has no FLUSHDB."""

from __future__ import annotations

from typing import Any

import redis


def _delete_all(self: Any, *_: Any, **__: Any) -> None:
    keys = self.execute_command("KEYS", "*")
    if keys:
        self.execute_command("DEL", *keys)


redis.Redis.flushdb = _delete_all  # type: ignore[method-assign]
