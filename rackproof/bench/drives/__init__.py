"""Single drives: fio on every block device, the benchmark of every Ceph OSD, and the proof of what they measured."""
