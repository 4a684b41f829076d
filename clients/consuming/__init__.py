"""Consuming: the life of a session, and what is delivered, handed out and committed in it."""
