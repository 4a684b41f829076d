"""Producing: batches that clients send are checked, held against what their partition knows, and proposed."""
