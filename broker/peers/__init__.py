"""Links between the nodes of a cluster: what PEERS.md says, in sockets."""
