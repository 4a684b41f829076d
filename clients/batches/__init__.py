"""Ready batches: appended under a producer of the caller's own, and read as they are stored."""
