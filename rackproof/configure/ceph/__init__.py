"""A Ceph cluster on one node, for the virtual rack."""
