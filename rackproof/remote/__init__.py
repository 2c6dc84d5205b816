"""The edge that touches machines: connections, commands with deadlines, recordings."""
