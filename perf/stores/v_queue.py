"""v_queue, the Rust file queue with a checksum in every record: from crates.io, driven by v_queue/src/main.rs.

It writes each record, and its own info file, at once. At `durable` the program syncs both files once per batch: the
crate has no sync of its own.
"""

from __future__ import annotations

from pathlib import Path

from .native import PROGRAM, NativeStore

STORE = NativeStore(
    name="v_queue (Rust)",
    sources=Path(__file__).with_suffix(""),
    steps=[["cargo", "build", "--release", "--quiet"], ["cp", "target/release/drive_v_queue", PROGRAM]],
    version=("v_queue", "Cargo.lock", r'name = "v_queue"\nversion = "(.+)"'),
    chunk=50_000,
)
