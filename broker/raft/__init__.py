"""Raft: how nodes agree on one log. Pure; `node.py` is the way in, `messages.py` what crosses it."""
