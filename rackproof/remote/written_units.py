"""systemd's answers of a written node.

The question about units names them, and the answer repeats the names, so a fixed text cannot answer it. A table has the
state of each unit; other units do not exist.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

NOT_FOUND = "not-found inactive"
_END = "rackproof-end"
_NAMES = re.compile(r"printf '%s\\n' (?P<names>.*?); echo --; ")
_MANAGER = re.compile(r"systemctl show --property=(?P<keys>\S+); ")
_PROOF = re.compile(r"; \} >/dev/null 2>&1; echo (?P<name>\S+) \$\?; ")


@dataclass(frozen=True, slots=True)
class UnitTable:
    """``states``: name or pattern, and systemd's ``LOAD ACTIVE [FILE]``; the first match counts."""

    states: tuple[tuple[str, str], ...] = ()
    manager: tuple[tuple[str, str], ...] = ()
    """Properties of systemd's manager, e.g. ``DefaultLimitMEMLOCK``."""
    pending: tuple[str, ...] = ()
    """The kit's marks of pending restarts (see ``rackproof.configure.files.PENDING``)."""

    def answer(self, command: str) -> str:
        """Answer to ``rackproof.configure.units.states_command``; the proof of an active unit succeeds.

        Raises ValueError for another command.
        """
        words = shlex.split(command)
        script = words[-1] if words[:1] == ["sh"] else command
        match = _NAMES.search(script)
        if match is None:
            raise ValueError(f"expected a question about units, actual {command[:80]}")
        names = shlex.split(match["names"])
        properties = dict(self.manager)
        manager = [key for match in _MANAGER.finditer(script) for key in match["keys"].split(",")]
        proofs = [shlex.split(match["name"])[0] for match in _PROOF.finditer(script)]
        active = {name: self._of(name)[1] == "active" for name in names}
        return "\n".join(
            (
                *names, "--", *(line for name in names for line in self._shown(name)),
                "--", *self.pending,
                "--", *(f"{key}={properties.get(key, '')}" for key in manager),
                "--", *(f"{name} {0 if active.get(name) else 1}" for name in proofs),
                _END, "",
            )
        )  # fmt: skip

    def _of(self, name: str) -> Sequence[str]:
        state_text = next((state for pattern, state in self.states if fnmatchcase(name, pattern)), NOT_FOUND)
        return (*state_text.split(), "", "")[:3]

    def _shown(self, name: str) -> tuple[str, ...]:
        load, active, file = self._of(name)
        return (
            f"Id={name}", f"LoadState={load}", f"ActiveState={active}", f"UnitFileState={file}",
            "NeedDaemonReload=no", "",
        )  # fmt: skip


def unit_table(
    states: Mapping[str, str], manager: Mapping[str, str], pending: Sequence[str]
) -> UnitTable:  # fmt: skip
    """Raises ValueError for a state that does not have two or three words."""
    for name, state in states.items():
        if len(state.split()) not in (2, 3):
            raise ValueError(f"units.{name}: expected LOAD ACTIVE [FILE], actual {state!r}")
    return UnitTable(tuple(states.items()), tuple(manager.items()), tuple(pending))
