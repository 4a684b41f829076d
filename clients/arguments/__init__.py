"""Arguments: checked where they are given, and converted to numbers."""
