"""What the console needs is in the wheel: templates, and files for browsers with their licences."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile

from support.sources import FOLDERS, ROOT

HERE = ROOT / "gateway" / "console"


def test_a_wheel_has_every_template_and_file(tmp_path):
    copy = tmp_path / "penstock"
    for name in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / name, copy / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", *(path.name for path in ROOT.glob("*.py"))):
        shutil.copy(ROOT / name, copy)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    subprocess.run([sys.executable, "-c", build], cwd=copy, check=True, capture_output=True, timeout=280)
    (wheel,) = copy.glob("*.whl")
    with zipfile.ZipFile(wheel) as found:
        names = {name.removeprefix("penstock/gateway/console/") for name in found.namelist() if "/console/" in name}
    wanted = {str(path.relative_to(HERE)) for path in HERE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert wanted <= names
    assert {"templates/base.html", "static/console.js", "static/VENDORED.txt", "console.py"} <= names
