"""The RESP door: Redis clients talk to topics (docs/resp.md).

Idea: bytes become commands (`parsing.py`, `requests.py`), one table (`table.py`) says what each command does, a
connection (`connection.py`) runs them in order, and replies (`replies.py`) go back as RESP2 or RESP3.
"""
