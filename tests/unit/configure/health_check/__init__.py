"""Nodes that look after themselves."""
