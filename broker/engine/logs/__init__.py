"""Logs: every open log of a node, its state, and the proposals to it."""
