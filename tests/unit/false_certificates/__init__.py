"""Runs that must not be certified."""
