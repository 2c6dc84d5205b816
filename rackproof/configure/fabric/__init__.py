"""The network between nodes: port names, addresses, MTU, routing, RDMA in software."""
