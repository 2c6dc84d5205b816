"""A run: its stages, the deploys and their progress."""
