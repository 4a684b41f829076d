"""Queues: a partition's records worked off one by one, by any number of workers.

Idea: a queue group is state over the partition's log. The frontier separates untouched records from the
rest; leased, retrying, held and dead-lettered records are in tables; everything else is done. All changes are effects.
"""
