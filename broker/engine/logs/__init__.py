"""Logs: every log of a node, open, with what it adds up to and what has been proposed to it."""
