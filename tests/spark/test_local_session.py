"""A session on this machine: what it settles before Spark starts."""

from __future__ import annotations

from penstock.spark.local_session import SOCKET_DIRECTORY_BYTES, over_unix_sockets

UUID_NAME = "/.01234567-89ab-cdef-0123-456789abcdef.sock"
PATH_BYTES = 107
"""Of a Unix socket on Linux."""


def test_spark_talks_to_python_over_unix_sockets_where_their_names_fit():
    longest = "/" + "x" * (SOCKET_DIRECTORY_BYTES - 1)
    assert len(longest + UUID_NAME) <= PATH_BYTES
    found = over_unix_sockets(longest)
    assert found["spark.python.unix.domain.socket.enabled"] == "true"
    assert found["spark.python.unix.domain.socket.dir"] == longest
    assert over_unix_sockets(longest + "x") == {}
    assert over_unix_sockets("/" + "ü" * 30) == {}, "bytes count"
