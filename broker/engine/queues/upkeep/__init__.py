"""Upkeep of queues over time: expired leases, copies between topics, due schedules."""
