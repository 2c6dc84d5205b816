"""Preflight: checks whether nodes can be brought to their declared state, before anything is changed.

``problem`` defines problems and how the inventory accepts them, ``state`` reads a node in one round trip, ``node`` and
``rack`` are pure checks. ``operations`` stops the node, or the whole run.
"""
