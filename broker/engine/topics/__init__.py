"""Topics as requests: create, alter, delete, list; and the greeting."""
