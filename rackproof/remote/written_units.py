"""systemd's answers of a written node, for any units.

A fact about units names them, and its answer repeats their names; deploys decide which. So a fixed text cannot answer
it. A table has the state of each unit; a unit that is not in it does not exist.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

NOT_FOUND = "not-found inactive"
_END = "rackproof-end"
_ASKED = re.compile(r"printf '%s\\n' (?P<names>.*?); echo --; ")
_MANAGER = re.compile(r"systemctl show --property=(?P<keys>\S+); ")
_PROOF = re.compile(r"; \} >/dev/null 2>&1; echo (?P<name>\S+) \$\?; ")


@dataclass(frozen=True, slots=True)
class UnitTable:
    """``states``: name or pattern, and ``LOAD ACTIVE [FILE]`` as systemd says it; the first that fits counts."""

    states: tuple[tuple[str, str], ...] = ()
    manager: tuple[tuple[str, str], ...] = ()
    """Properties of the manager itself, ``DefaultLimitMEMLOCK``."""
    pending: tuple[str, ...] = ()
    """Marks that the kit has left (see ``rackproof.configure.files.PENDING``)."""

    def answer(self, command: str) -> str:
        """To the question of ``rackproof.configure.units.states_command``. Raises ValueError on another one.

        A unit's proof holds where the unit is active.
        """
        words = shlex.split(command)
        script = words[-1] if words[:1] == ["sh"] else command
        asked = _ASKED.search(script)
        if asked is None:
            raise ValueError(f"no question about units: {command[:80]}")
        names = shlex.split(asked["names"])
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
    """Raises ValueError where a state is not two or three words."""
    for name, state in states.items():
        if len(state.split()) not in (2, 3):
            raise ValueError(f"units.{name}: expected LOAD ACTIVE [FILE], actual {state!r}")
    return UnitTable(tuple(states.items()), tuple(manager.items()), tuple(pending))
