"""SQL over topics: DuckDB reads their batches as Arrow, from the broker's files where they can be mapped."""
