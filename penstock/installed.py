"""What is installed: this penstock, the libraries it uses, and the formats it writes. For reports and the doctor.

Contract: asks the installed metadata alone; a library is not imported to learn its version. "" stands for one that is
not installed.
"""

from __future__ import annotations

import platform
import re
from functools import partial
from importlib import metadata

_OF_DEVELOPERS = re.compile(r"extra == ['\"](dev|bench|demo)['\"]")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def version_of(name: str) -> str:
    """The version of an installed library; "" without one."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def system() -> str:
    """The kernel and the processor."""
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def libraries() -> dict[str, str]:
    """Each library that penstock or an extra of it needs, and its version."""
    wanted = [each for each in metadata.requires("penstock") or [] if not _OF_DEVELOPERS.search(each)]
    names = {found[0].lower() for found in map(partial(re.match, _NAME), wanted) if found is not None}
    return {name: version_of(name) for name in sorted(names - {"penstock"})}


def formats() -> dict[str, int]:
    """The versions of what this penstock writes, and up to which it reads."""
    from .broker.engine.tables.state import VERSION as state
    from .storage import board_row, data_directory, finals, layout, snapshots
    from .storage.backup_point import FORMAT as backup
    from .transport.codec import VERSION as protocol

    return {
        "log format": layout.VERSION,
        "snapshot format": snapshots.VERSION,
        "state format": state,
        "finals format": finals.VERSION,
        "board format": board_row.VERSION,
        "directory format": data_directory.FORMAT,
        "backup format": backup,
        "protocol": protocol,
    }
