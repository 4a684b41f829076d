"""Queues: the verbs of groups, tasks by id, dead letters and schedules, and what they return."""
