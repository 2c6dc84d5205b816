"""Facts about a node's own settings."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.facts import Answer, complete
from rackproof.configure.node import cmdline, scratch, settings, users


class BootLoader(Answer[cmdline.BootLoader]):
    """The running command line, and the boot loader's for the next start."""

    def command(self) -> str:
        return complete(cmdline.state_command())

    def parse(self, lines: list[str]) -> cmdline.BootLoader:
        return cmdline.parse_state(lines)


class NodeSettings(Answer[settings.SettingsState]):
    """Swap, time zone, tuned, modules, huge pages and interrupts, as far as they are declared."""

    def command(self, wanted: settings.Settings) -> str:
        return complete(settings.state_command(wanted))

    def parse(self, lines: list[str]) -> settings.SettingsState:
        return settings.parse_state(lines)


class ScratchArray(Answer[scratch.ScratchState]):
    """The drives of the scratch array, and the array."""

    def command(self, array: scratch.Scratch) -> str:
        return complete(scratch.state_command(array))

    def parse(self, lines: list[str]) -> scratch.ScratchState:
        return scratch.parse_state(lines)


class Accounts(Answer[dict[str, users.Account]]):
    """Accounts by name."""

    def command(self, names: Sequence[str]) -> str:
        return complete(users.state_command(names))

    def parse(self, lines: list[str]) -> dict[str, users.Account]:
        return users.parse_state(lines)
