"""The same work on a node and in a container."""
