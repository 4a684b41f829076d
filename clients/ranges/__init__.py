"""Ranges: the records between two offsets, read without a session, and planning over whole topics."""
