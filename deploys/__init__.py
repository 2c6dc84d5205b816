"""Deploys that configure nodes as their architecture declares: one file per concern, ``cluster.py`` for a whole rack.

Every file also runs alone: ``pyinfra INVENTORY deploys/storage_client.py``. The calls at its end are for that case:
preflight and the packages of ``base`` before it, and the report of pending reboots after it. Exceptions: ``preflight``,
``driver_swap`` and ``reboot`` run preflight and themselves, ``versions`` runs without ``base``, ``rollback`` and
``unmount`` run alone. The packages of ``rackproof.configure`` plan files and units of each concern.
"""
