"""Reading: checks delivered or mapped batches and decodes them into records."""
