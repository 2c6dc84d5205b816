"""Ingest: data sets, input pipelines and accelerators."""
