"""Benchmarks: they measure and never judge."""
