"""Transactions: records of several partitions and topics that become readable together or not at all.

Idea: producers put batches of kind STAGED into partitions, where readers skip them; one decision in a separate log
commits them; then the same records are appended once more, as ordinary ones.
"""
