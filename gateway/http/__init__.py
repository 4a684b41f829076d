"""The HTTP door: topics as queues of messages, tasks and administration over HTTP (docs/http.md).

Idea: one table of operations (`table.py`) says what each method and path does, takes and gives. Dispatch (`app.py`),
the OpenAPI document and its page (`openapi.py`, `page.py`) are made from it. An operation is a function of a request
(`operation.py`) that knows no server. Connections and their bounds are in `connection.py` and `server.py`.
"""
