"""A run: its evidence on disk, its stages, its progress."""
