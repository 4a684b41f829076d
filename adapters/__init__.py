"""Doors for other task libraries: each is a client of the broker and nothing else."""
