"""Builds the documentation site: `make docs`, and `make test`, which wants it without a warning.

Idea: pages are laid out in build/pages as the site has them (docs/, the pages it links to, and those that the code
writes about itself), and zensical makes HTML of them in build/site. The navigation is in zensical.toml.

    python .ci/site              # build/site/index.html
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from links import moved, place
from reference import pages

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build/pages"
SITE = ROOT / "build/site"


def lay_out(root: Path, target: Path) -> None:
    """Lay all pages and the files they link to out under `target`."""
    waiting = sorted(str(path.relative_to(root)) for path in (root / "docs").rglob("*") if path.is_file())
    known = set(waiting)

    def found(path: str) -> None:
        if path not in known:
            known.add(path)
            waiting.append(path)

    for path in waiting:  # grows while it is read
        where = target / place(path)
        where.parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".md"):
            where.write_text(moved((root / path).read_text(), path, root, found))
        else:
            shutil.copy(root / path, where)


def main() -> int:
    for directory in (PAGES, SITE):
        shutil.rmtree(directory, ignore_errors=True)
    lay_out(ROOT, PAGES)
    for name, text in pages().items():
        (PAGES / name).parent.mkdir(parents=True, exist_ok=True)
        (PAGES / name).write_text(text)
    built = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=ROOT, check=False)
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
