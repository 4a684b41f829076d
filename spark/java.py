"""Finds the Java that Spark is to run on, before Spark is started.

Idea: without Java, pyspark ends in a stack trace about its gateway. Code that starts a session asks here first and
gets one sentence instead. Contract: only looks, never installs; loads without pyspark.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ..storage.errors import MissingLibrary, way_to_install
from .errors import MissingJava

NEEDED = 17
JVMS = Path("/usr/lib/jvm")
VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def missing() -> str:
    """Why Spark cannot start here, as a sentence; "" if it can."""
    try:
        check()
    except (MissingLibrary, MissingJava) as error:
        return error.message
    return ""


def check() -> Path:
    """The home of the Java to run on. Raises MissingLibrary and MissingJava, which say what to install."""
    if find_spec("pyspark") is None:
        raise MissingLibrary(f"Spark needs the package pyspark, which is not installed: {way_to_install('spark')}")
    return home()


def home(environment: Mapping[str, str] | None = None, jvms: Path = JVMS) -> Path:
    """The first Java that is new enough: in JAVA_HOME, on the PATH, below /usr/lib/jvm. Raises MissingJava."""
    older = []
    for place in _candidates(os.environ if environment is None else environment, jvms):
        version = _version(place / "bin" / "java")
        if version >= NEEDED:
            return place
        if version:
            older.append(f"; {place} has {version}")
    raise MissingJava(
        f"Spark needs Java {NEEDED} or newer, and there is none in JAVA_HOME, on the PATH or below {jvms}"
        f"{''.join(older)}: install it (Debian, Ubuntu: apt install openjdk-17-jre-headless)"
    )


def _candidates(environment: Mapping[str, str], jvms: Path) -> Iterator[Path]:
    if named := environment.get("JAVA_HOME"):
        yield Path(named)
    if program := shutil.which("java", path=environment.get("PATH", "")):
        yield Path(program).resolve().parent.parent
    yield from sorted(jvms.glob("*"))


@cache
def _version(java: Path) -> int:
    """The version of a Java program; 0 if it is none."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = VERSION.search(told.stderr + told.stdout)
    return int(found[1]) if found else 0
