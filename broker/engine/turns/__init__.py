"""Turns: what a node processes in one turn, work split over several, and answers that wait for a commit."""
