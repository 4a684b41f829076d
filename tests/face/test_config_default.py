"""The file of defaults says what is the case, and every line of it can be uncommented."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.config import FIELDS, LIVE, load
from penstock.config_default import default_file

ENVIRON = {"HOME": "/home/eve", "XDG_RUNTIME_DIR": "/run/user/7"}
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def test_the_file_loads_as_it_is_and_uncommented_and_gives_the_defaults(tmp_path: Path) -> None:
    text, path = default_file({**ENVIRON, "PENSTOCK_DRAIN_S": "1s", "PENSTOCK_CONFIG": "/none"}), tmp_path / "c.toml"
    assert re.findall(r"^#(\w+) = ", text, re.MULTILINE) == list(FIELDS)
    defaults = load(environ={**ENVIRON, "PENSTOCK_CONFIG": "/dev/null"})
    for written in (text, re.sub(r"^#(\w+ = )", r"\1", text, flags=re.MULTILINE)):
        path.write_text(written)
        loaded = load(environ=ENVIRON, path=path)
        assert loaded.config == defaults.config
    assert {each.source for each in loaded.values} == {f"file {path}"}
    for about, _ in FIELDS.values():
        assert about.split()[0] in text
    assert text.count("Changes on SIGHUP") == len(LIVE)


def test_settings_that_the_document_names_are_settings() -> None:
    text = DOCUMENT.read_text()
    rows = re.findall(r"^\| (?:Yuclase|v_queue) .+? \| (.+?) \|", text, re.MULTILINE)
    assert len(rows) >= 17
    theirs = {"segment_bytes", "commit", "retention_s", "codec", "window_bytes"}
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named - theirs <= set(FIELDS)
    assert all(name in text for name in LIVE)
    keys = (
        "host port max_connections read_timeout write_timeout data_directory log_segment_size index_interval "
        "sync_interval retention_duration compression level file max_size max_backups max_age buffer_size "
        "worker_pool_size gc_interval"
    )
    assert all(f".{key}`" in text for key in keys.split())
    assert all(f"`{key}`" in text for key in ("bind", "data_dir", "log_level", "no_auth"))
