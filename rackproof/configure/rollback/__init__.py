"""Rollback: nodes keep the previous state of everything that a run changes, and a rollback restores it."""
