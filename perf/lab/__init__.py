"""Figures and their processing: rows, the harness, samples, archive, report, plots. Knows no system."""
