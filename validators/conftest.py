"""Checks get their nodes, what was promised and their outcomes from the kit's plugin."""

pytest_plugins = ["rackproof.validation.plugin"]
