"""Basics of every node: packages, time, limits, kernel settings, no automatic updates."""
