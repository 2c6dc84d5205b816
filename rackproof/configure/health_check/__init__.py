"""Health checks of nodes: installs the kit on them, and the program that Slurm runs."""
