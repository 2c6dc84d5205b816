"""Links between nodes, and from clients to the servers of their storage."""
