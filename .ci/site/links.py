"""Where pages and files of the repository stand in the site, and links that follow them.

Idea: documents are written for their place in the repository, where each link is a path. A page that moves to another
place in the site has its links moved with it; a file that is no page (a unit of systemd, a program) is copied, too.
Contract: a link that leads nowhere raises DeadLink. Knows nothing of what a page says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

PLACES = {
    "README.md": "readme.md",
    "ARCHITECTURE.md": "inside/architecture.md",
    "CONTRIBUTING.md": "inside/contributing.md",
    "CHANGELOG.md": "changelog.md",
    "storage/FORMAT.md": "inside/format.md",
    "transport/PROTOCOL.md": "inside/protocol.md",
    "broker/engine/tables/STATE.md": "inside/state.md",
    "perf/RESULTS.md": "figures/results.md",
    "perf/README.md": "figures/method.md",
    "perf/xeon/RESULTS.md": "figures/xeon/results.md",
    "perf/xeon/README.md": "figures/xeon/index.md",
    "perf/systems/README.md": "figures/systems.md",
    "examples/README.md": "examples/index.md",
    "spark/examples/flights/README.md": "spark/flights.md",
    "clients/typescript/README.md": "typescript/package.md",
    "docs/decisions/README.md": "decisions/index.md",
}
"""Pages outside of docs/, and those of another name."""

LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\]\n]*)\]\((?P<target>[^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class DeadLink(Exception):
    """A link leads to no file of the repository."""


def place(path: str) -> str:
    """Where a page of the repository stands in the site."""
    return PLACES.get(path) or path.removeprefix("docs/")


def moved(text: str, path: str, root: Path, found: Callable[[str], object]) -> str:
    """The text of the page `path` with its links as they are in the site; `found` hears of each file linked to."""

    def follow(match: re.Match[str]) -> str:
        target, _, anchor = match["target"].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        file = os.path.normpath(PurePosixPath(path).parent / target)
        if (root / file).is_dir():
            return match["text"]
        if not (root / file).is_file():
            raise DeadLink(f"{path}: {match['target']}")
        found(file)
        there = os.path.relpath(place(file), PurePosixPath(place(path)).parent)
        return f"{match['image']}[{match['text']}]({there}{'#' + anchor if anchor else ''})"

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(follow, part) for part in parts)
