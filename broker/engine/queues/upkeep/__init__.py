"""Upkeep of queues: what happens because time passes: leases end, copies cross, schedules come due."""
