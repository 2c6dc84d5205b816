"""The version set on a node: repositories, exact packages, holds, kernel, DKMS, and reading all of it back."""
