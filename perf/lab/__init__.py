"""What a figure is and what becomes of it: rows, the harness, samples, archive, report, plots. Knows no system."""
