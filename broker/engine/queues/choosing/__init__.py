"""Choosing: which records a lease gets next, and reading them."""
