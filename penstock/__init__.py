"""penstock: a message log and task queue for Python."""
