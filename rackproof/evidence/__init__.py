"""The evidence of a run on disk: its folder, the store that appends to it, and the session that records commands."""
