"""The gateway: a process that serves other protocols, as a client of the broker like any other (decision 063).

Idea: a door (resp/) speaks one protocol and is thin: what it offers are operations of a client. The rules stay in the
broker.
Contract: `penstock gateway` runs it, alone or under `penstock serve`; nothing imports it otherwise. Its libraries
come with the extra `gateway`.
"""
