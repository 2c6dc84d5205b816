"""Whether a node can become what is declared, asked before anything of it is touched.

``problem`` says what was found and how it is accepted, ``state`` asks and reads a node in one round trip, ``node`` and
``rack`` judge: pure functions of what was read. ``operations`` stops the node, or the whole run.
"""
