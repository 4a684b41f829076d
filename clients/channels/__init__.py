"""Channels between machines and processes: Unix sockets, ZeroMQ."""
