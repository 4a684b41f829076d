"""Topics as requests: create, alter, delete, list; and who we are."""
