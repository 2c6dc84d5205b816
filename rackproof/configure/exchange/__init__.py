"""Driver, fabric manager and network stack are exchanged on nodes where nobody works, and these get no new jobs until
the reboot after it.

``due`` says what a run would exchange, ``use`` who works with what is there, ``operations`` takes the node out of
Slurm. Nodes without GPUs, and those where nothing would be exchanged, are asked nothing.
"""
