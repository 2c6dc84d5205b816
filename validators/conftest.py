"""Checks get their nodes, the architecture and their outcomes from the kit's plugin."""

pytest_plugins = ["rackproof.validation.plugin"]
