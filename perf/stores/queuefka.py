"""queuefka, the Go log whose table this one repeats: built from the module proxy, driven by queuefka/main.go.

Its own table was made with records of 20 bytes on a machine of 2008, flushed when the program ended. Here it flushes
once per batch like the other stores, and at `durable` its segment files are synced by name: it has no sync of its own.

A module proxy may refuse it (403), or its checksums (github.com/vova616/xxhash). Go takes both from elsewhere: from
their repositories with `GOPROXY=direct make bench`, from clones packed as a proxy has them with
`GOPROXY=file:///DIRECTORY GONOSUMDB=github.com make bench`.
"""

from __future__ import annotations

from pathlib import Path

from .native import PROGRAM, NativeStore

MODULE = "github.com/ubergarm/queuefka"
REVISION = "f9f5070"  # the last one, of 2016; the proxy knows its full name

STORE = NativeStore(
    name="queuefka (Go)",
    sources=Path(__file__).with_suffix(""),
    steps=[["go", "get", f"{MODULE}@{REVISION}"], ["go", "build", "-o", PROGRAM, "."]],
    version=(MODULE, "go.mod", rf"{MODULE} (\S+)"),
)
