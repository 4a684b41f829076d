"""Streams: fetching, and groups whose members share the partitions of a topic."""
