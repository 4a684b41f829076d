"""Reading: batches that were delivered or are mapped, checked, and made into records."""
