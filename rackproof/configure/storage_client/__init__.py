"""Storage clients: one module per file system, with the needs of its client and its mounts.

``client.py`` has the shared types, ``catalogue.py`` selects the module for every storage of an architecture.
``rackproof.configure.mounts`` plans the mounts of all of them.
"""
