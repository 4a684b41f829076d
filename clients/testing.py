"""Fixtures for users of penstock."""
