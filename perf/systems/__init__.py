"""Message systems under one interface (system.py): penstock, its peers, and bare sockets. One file each."""
