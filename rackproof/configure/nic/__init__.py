"""Network adapters of NVIDIA (Mellanox): kinds, drivers, firmware, and the settings that ports forget at every boot."""
