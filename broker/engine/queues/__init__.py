"""Queues: a partition's records worked off one by one, by any number of workers.

Idea: a queue group is state over the partition's log. What is untouched is a number (the frontier); what is leased,
waits to be tried again, or is dead stands in tables; everything else is done. Every change is an effect.
"""
