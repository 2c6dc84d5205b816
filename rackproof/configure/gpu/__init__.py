"""The stack of GPUs: driver, fabric manager, settings, containers.

``rackproof.core.gpu_generations`` says what a GPU is, ``driver`` which driver it gets, ``packages`` what that is
called on which operating system, ``state`` what is there, and ``install``, ``tuning`` and ``storage`` make the scripts
in between. All of that is pure; ``facts`` and ``operations`` are the edge.
"""
