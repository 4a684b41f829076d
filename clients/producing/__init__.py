"""Producing: from values and tables to batches on their way, and the futures of what was sent."""
