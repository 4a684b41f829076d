"""Queues: a partition's records as work items, shared by any number of workers.

Idea: a queue group is state over the partition's log. The frontier separates untouched records from the rest; leased,
retrying, held and dead-lettered records are in tables; all others are done. All changes are effects.
"""
