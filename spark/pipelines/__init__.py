"""Pipelines as functions: a Spark session and plain arguments in, progress and exactly-once results out."""
