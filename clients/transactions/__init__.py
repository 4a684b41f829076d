"""Transactions: records of many partitions published together or not at all, from one process or from many.

Idea: producers of a staging send as any other, but the broker holds their records back from readers. A stage
is described by a few numbers (`Stage`), which travel to the committing client; the broker decides once for each name
and epoch.

Contract: every request is idempotent; a transaction is published once, and as a whole.
"""
