"""The asyncio twins: the same names as in the folders around, awaited."""
