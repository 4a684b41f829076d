"""What pyright says of programs that use the package, laid out as the wheel has it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.sources import FOLDERS, ROOT


def diagnostics(place: Path, programs: Mapping[str, str], mode: str) -> list[dict[str, Any]]:
    """Of each program, by file name, in a mode of pyright."""
    (place / "penstock").mkdir()
    for entry in [*(ROOT / "penstock").iterdir(), *(ROOT / folder for folder in FOLDERS if folder != "penstock")]:
        (place / "penstock" / entry.name).symlink_to(entry)
    for name, text in programs.items():
        (place / name).write_text(text)
    (place / "pyrightconfig.json").write_text(json.dumps({"include": [*programs], "typeCheckingMode": mode}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(place)]
    return json.loads(subprocess.run(command, capture_output=True, timeout=100).stdout)["generalDiagnostics"]


def check_sample(place: Path, sample: str) -> None:
    """Lines that end in `# wrong` must be errors, and no others; `# is X` is what `reveal_type` says there."""
    found: dict[int, list[str]] = {}
    revealed: dict[int, str] = {}
    for each in diagnostics(place, {"sample.py": sample}, "standard"):
        line = each["range"]["start"]["line"]
        if each["severity"] == "information":
            revealed[line] = re.findall(r'is "(.*)"', each["message"])[0]
        else:
            found.setdefault(line, []).append(each["message"])
    lines = sample.splitlines()
    assert {number: message for number, message in found.items() if not lines[number].endswith("# wrong")} == {}
    assert [line for number, line in enumerate(lines) if line.endswith("# wrong") and number not in found] == []
    assert revealed == {n: line.partition("# is ")[2] for n, line in enumerate(lines) if "# is " in line}
