"""Transactions: records of many partitions published together or not at all, from one process or from many.

Idea: producers of a staging send as any other, but what they send waits at the broker, read by nobody. What they staged
is told in a few numbers (`Stage`), which travel to whoever commits; the broker decides once for each name and epoch.

Contract: everything may be repeated; nothing is published twice, and nothing partly.
"""
