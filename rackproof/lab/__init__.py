"""The virtual rack: QEMU machines from an image that the kit builds itself."""
