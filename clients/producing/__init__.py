"""Producing: from values and tables to batches in flight, and the futures of sent records."""
