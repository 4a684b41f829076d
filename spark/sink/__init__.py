"""The sink: DataFrames and streams written to topics."""
