"""Collectives of all nodes, and group testing with them."""
