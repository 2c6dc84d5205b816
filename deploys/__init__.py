"""How a node becomes what its reference architecture says.

``cluster.py`` is the entry; every other module is one concern, with a deploy function that takes no arguments and
reads what applies to the node at hand. Values come from the architecture, addresses and drives from the inventory,
and the few settings that neither of them knows are data defaults, documented where they are used.
"""
