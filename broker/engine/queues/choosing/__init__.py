"""Choosing: which records a lease gets next (priority, retries, delays, keys), and reading them."""
