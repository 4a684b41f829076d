"""Embedded stores under one interface (store.py): penstock's Log and what users write to a disk with. One file each."""
