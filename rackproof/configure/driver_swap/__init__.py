"""Replace GPU driver, fabric manager and network stack only on nodes without users, drained until the next reboot.

``pending`` lists what a run would replace, ``gpu_users`` of reboots the processes and jobs on the node, ``operations``
drains the node in Slurm. Nodes without GPUs, and nodes with nothing to replace, are not read.
"""
