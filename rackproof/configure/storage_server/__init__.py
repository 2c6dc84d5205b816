"""An NFS server with a drive of its own."""
