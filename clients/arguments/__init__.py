"""Arguments: checked where they are given, and turned into the numbers that machines use."""
