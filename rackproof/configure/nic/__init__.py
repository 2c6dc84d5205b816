"""Network adapters of NVIDIA (Mellanox): which is which, drivers, firmware, and what a port forgets at every boot."""
