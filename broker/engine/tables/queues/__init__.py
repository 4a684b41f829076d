"""The tables of queue groups on one partition: the sum of their effects."""
