"""The stack of GPUs: driver, fabric manager, settings, containers.

``rackproof.core.gpu_generations`` says what a GPU is, ``driver`` which driver it gets, ``packages`` the names of its
packages, ``state`` what a node has, and ``install``, ``tuning`` and ``storage`` plan the difference. All of that is
pure; ``facts`` and ``operations`` reach the node.
"""
