"""What SIGHUP does to `penstock serve`: the configuration is read again, and each change is said.

Contract: a configuration that cannot be used changes nothing. Settings of `LIVE` change at once; others are named, and
change at the next start. The files of users and grants are read again by themselves when they change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..config import LIVE, Config, InvalidConfig, Loaded
from .output import Output
from .standard_streams import tell


class Reloading:
    """Compares what is read now with what runs."""

    def __init__(self, running: Config, load: Callable[[], Loaded], output: Output, say: Callable[[str], None]) -> None:
        self._running = running
        self._load = load
        self._output = output
        self._say = say

    def __call__(self) -> dict[str, Any]:
        """Read it again. Returns the settings that change now, by name."""
        try:
            fresh = self._load().config
        except InvalidConfig as error:
            self._tell({}, [], f"the configuration stays as it was: {error.message}")
            return {}
        changed = [name for name in Config.__struct_fields__ if getattr(fresh, name) != getattr(self._running, name)]
        live = {name: getattr(fresh, name) for name in changed if name in LIVE}
        later = [name for name in changed if name not in LIVE]
        sentences = [f"{name} is {value} now" for name, value in live.items()]
        sentences += [f"{', '.join(later)} will change at the next start"] if later else []
        self._running = _with(self._running, live)
        self._tell(live, later, "; ".join(sentences) or "the configuration was read again, and nothing changed")
        return live

    def _tell(self, live: dict[str, Any], later: list[str], sentence: str) -> None:
        if self._output.as_json:
            event = {"event": "reloaded", "changed": live, "at_next_start": later, "message": sentence}
            tell(lambda: self._output.json(event))
        self._say(sentence)


def _with(config: Config, values: dict[str, Any]) -> Config:
    from msgspec.structs import replace

    return replace(config, **values)
