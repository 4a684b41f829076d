"""The keeper: the process that syncs, marks and unlinks for the broker, and the broker's end of their link."""
