"""A broker that is a member of a cluster: what it drives instead of a node alone."""
