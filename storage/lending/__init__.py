"""A log that is lent to a producer, which appends to it while the broker follows (docs/decisions/091-*.md)."""
