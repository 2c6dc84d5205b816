"""How a node becomes what its reference architecture says: one file a concern, ``cluster.py`` for a whole rack.

Every file runs alone, too: ``pyinfra INVENTORY deploys/storage_client.py``. The calls at its end are what it brings
then: preflight and the packages of ``base`` before it, at the end what waits for a reboot. What files declare is
planned in ``rackproof.configure``, in the package of the concern.
"""
