"""Consuming: sessions, and the records delivered, handed out and committed in them."""
