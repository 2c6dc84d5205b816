"""Container runtimes, and the way into shared storage from a container without privileges."""
