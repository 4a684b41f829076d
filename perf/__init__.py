"""Benchmarks: every figure penstock states, measured beside this machine's own limits. See README.md here."""
