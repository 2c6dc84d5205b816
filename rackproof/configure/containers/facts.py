"""Facts of containers."""

from __future__ import annotations

from rackproof.configure.containers import bridge, downloads, user
from rackproof.configure.containers.inputs import ContainerInputs
from rackproof.configure.facts import Answer, complete


class ContainerUser(Answer[user.UserState]):
    """The user, its subordinate ids and its folders."""

    def command(self, inputs: ContainerInputs, folders: tuple[str, ...]) -> str:
        return complete(user.state_command(inputs, folders))

    def parse(self, lines: list[str]) -> user.UserState:
        return user.parse_state(lines)


class Installed(Answer[frozenset[str]]):
    """sha256 of the downloads that were installed."""

    def command(self) -> str:
        return complete(downloads.state_command())

    def parse(self, lines: list[str]) -> frozenset[str]:
        return frozenset(lines)


class HostRoot(Answer[bool]):
    """Whether the root of containers without an image is complete."""

    def command(self, mountpoints: tuple[str, ...]) -> str:
        return complete(f"if {bridge.root_state(mountpoints)}; then echo yes; else echo no; fi; ")

    def parse(self, lines: list[str]) -> bool:
        return {"yes": True, "no": False}[lines[0]]
