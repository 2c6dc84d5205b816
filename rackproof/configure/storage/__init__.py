"""Storage clients: one module a file system, each of which says what its client needs and what it mounts.

``client.py`` is what they have in common, ``catalogue.py`` finds the right one for every storage of an architecture.
What is mounted is planned in ``rackproof.configure.mounts`` for all of them alike.
"""
