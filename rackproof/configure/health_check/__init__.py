"""A node that looks after itself: the kit on it, and what Slurm calls."""
