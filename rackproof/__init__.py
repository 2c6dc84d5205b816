"""rackproof: build a rack of GPU servers, measure it, and prove that it is the one that was ordered."""

__version__ = "0.1.0"
