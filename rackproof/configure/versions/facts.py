"""Facts of a version set."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.facts import Answer, answer, complete
from rackproof.configure.versions import kernels, repositories, state


class PackageStates(Answer[state.PackageState]):
    """Versions and holds of the given packages, half-configured packages, free space."""

    def command(self, names: Sequence[str], family: str) -> str:
        self.family = family
        return complete(state.state_command(names, family))

    def parse(self, lines: list[str]) -> state.PackageState:
        return state.parse_state(lines, self.family)


KeyDigests = answer("KeyDigests", repositories.keys_command, repositories.parse_keys)
"""sha256 of repository keys, by path."""

Kernels = answer("Kernels", kernels.kernel_command, kernels.parse_kernel)
"""Kernels, their headers, and the DKMS modules built for them."""
