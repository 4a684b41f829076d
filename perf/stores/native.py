"""A store in another language: a small program of ours around the library, built once, run as a child.

Idea: the sources beside this file speak one protocol, so that this module need not know the language:
`append DIR BATCH durable|written` takes frames (frames.py) from its input and prints how many nanoseconds they took,
`read DIR` prints as much for reading all, `show DIR` puts them out as frames. The clock runs inside the program,
between opening and closing.

Contract: the library's source is fetched by its own toolchain and by nothing else. Built programs are kept under
PENSTOCK_PEERS (default ~/.cache/penstock-peers), named by what they were made of; the checkout is not written to. No
toolchain, or a build that fails, makes the store absent, with the reason.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..lab.installed import peers_directory
from .frames import framed, values_of

BUILD_SECONDS = 900
RUN_SECONDS = 600
PROGRAM = "program"
"""What the last step of a build must leave in the directory it runs in."""


@dataclass
class NativeStore:
    """A store behind such a program. `steps` build it in a copy of `sources`; `version` finds what was built there."""

    name: str
    sources: Path
    steps: Sequence[Sequence[str]]
    version: tuple[str, str, str]  # the library, a file of the build, a pattern whose group is the version
    checks: bool = True
    chunk: int = 300_000
    durabilities: frozenset[str] = field(default=frozenset({"durable", "written"}))

    def absent(self) -> str:
        return self._reason

    @cached_property
    def _reason(self) -> str:
        tool = self.steps[0][0]
        if self.built():
            return ""
        if shutil.which(tool) is None:
            return f"there is no {tool} to build it with"
        try:
            self._build()
        except (OSError, subprocess.SubprocessError) as error:
            return f"{tool} could not build it: {_said(getattr(error, 'stderr', None) or str(error))}"
        return ""

    def built(self) -> bool:
        """Whether the program is built."""
        return (self._place / PROGRAM).exists()

    @cached_property
    def _place(self) -> Path:
        parts = [str(self.steps).encode(), *(path.read_bytes() for path in self._files())]
        return peers_directory() / f"{self.sources.name}-{hashlib.sha256(b''.join(parts)).hexdigest()[:12]}"

    def _files(self) -> Iterable[Path]:
        return sorted(path for path in self.sources.rglob("*") if path.is_file())

    def _build(self) -> None:
        """Build in a temporary directory and rename it when complete: two runs may build at once."""
        self._place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._place.parent) as made:
            workshop = Path(made) / "build"
            shutil.copytree(self.sources, workshop)
            for step in self.steps:
                subprocess.run(step, cwd=workshop, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS)
            shutil.rmtree(workshop / "target", ignore_errors=True)  # cargo's, a hundred times the program
            if not self.built():
                workshop.rename(self._place)

    def versions(self) -> dict[str, str]:
        library, file, pattern = self.version
        found = re.search(pattern, (self._place / file).read_text())
        return {library: found.group(1)} if found else {}

    def append_ns(self, directory: Path, values: Sequence[bytes], batch: int, *, durable: bool) -> float:
        frames = b"".join(map(framed, values))
        level = "durable" if durable else "written"
        return float(self._run("append", str(directory), str(batch), level, given=frames)) / len(values)

    def read_ns(self, directory: Path, count: int) -> float:
        return float(self._run("read", str(directory))) / count

    def read(self, directory: Path, count: int) -> list[bytes]:
        return list(values_of(io.BytesIO(self._run("show", str(directory))).read))[:count]

    def _run(self, *arguments: str, given: bytes = b"") -> bytes:
        command = [str(self._place / PROGRAM), *arguments]
        return subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, timeout=RUN_SECONDS).stdout


def _said(output: str) -> str:
    """The end of a tool's output, without addresses of mirrors, which differ by machine."""
    end = " ".join(line.strip() for line in output.strip().splitlines()[-2:])
    return re.sub(r"\(?https?://\S+", "...", end)
