"""Lending logs to producers that append by themselves: who gets one, what ends it, and what stands beside it."""
