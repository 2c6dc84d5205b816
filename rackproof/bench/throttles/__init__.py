"""Limits of ports and drives that a scaled architecture declares: set on virtual machines, read back, removed."""
