"""Container runtimes and the bridge, planned."""
