"""A spool: records that are accepted on disk, and forwarded to a broker later, each once."""
