"""Facts of a version set."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.facts import Answer, complete
from rackproof.configure.versions import downloads, kernels, repositories, state


class PackageStates(Answer[state.PackageState]):
    """Versions and holds of the given packages, half-configured packages, free space."""

    def command(self, names: Sequence[str], family: str) -> str:
        self.family = family
        return complete(state.state_command(names, family))

    def parse(self, lines: list[str]) -> state.PackageState:
        return state.parse_state(lines, self.family)


class KeyDigests(Answer[dict[str, str]]):
    """sha256 of repository keys, by path."""

    def command(self, wanted: Sequence[repositories.Key]) -> str:
        return complete(repositories.keys_command(wanted))

    def parse(self, lines: list[str]) -> dict[str, str]:
        return repositories.parse_keys(lines)


class PlacedFiles(Answer[dict[str, downloads.FileDigest]]):
    """Digest and mode of the set's files, by path."""

    def command(self, wanted: Sequence[downloads.Placed]) -> str:
        return complete(downloads.state_command(wanted))

    def parse(self, lines: list[str]) -> dict[str, downloads.FileDigest]:
        return downloads.parse_state(lines)


class Kernels(Answer[kernels.KernelState]):
    """Kernels, their headers, and the DKMS modules built for them."""

    def command(self, release: str) -> str:
        return complete(kernels.kernel_command(release))

    def parse(self, lines: list[str]) -> kernels.KernelState:
        return kernels.parse_kernel(lines)
