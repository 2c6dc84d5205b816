"""Inputs of the ingest benchmark."""
