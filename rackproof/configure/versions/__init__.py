"""Installs a version set on a node and verifies it: repositories, exact packages, holds, kernel, DKMS modules."""
