"""Access to nodes: connections, commands with deadlines, recordings."""
