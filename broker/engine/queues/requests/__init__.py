"""The requests of queues: lease, settle, tasks by id, dead letters, administration."""
