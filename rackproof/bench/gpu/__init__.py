"""GPUs of one node, and their PCIe links under load."""
