"""Slurm of a rack: one controller, its nodes, one key and one configuration for all of them."""
