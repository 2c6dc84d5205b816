"""Slurm of a rack, planned."""
