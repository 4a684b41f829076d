"""Turns: what the node looks at in one turn, what waits for a later one, and answers that wait for a commit."""
