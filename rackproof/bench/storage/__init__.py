"""Storage: fio on every client, and the proof of what it measured."""
