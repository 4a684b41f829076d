"""Transactions: records of several partitions and topics that can be read all or not at all.

Idea: producers put batches of kind STAGED into partitions, where nobody reads them; one decision in a log of its own
says that they count; then the same records are appended once more, as ordinary ones.
"""
