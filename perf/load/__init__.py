"""What drives systems: open loops in processes of their own, the search for a rate, peers, readers at once."""
