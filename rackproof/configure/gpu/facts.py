"""Questions to a node about its GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.facts import Answer, complete
from rackproof.configure.gpu import runtimes, state, storage


class GpuFacts(Answer[state.GpuState]):
    """Driver, packages, units and what nvidia-smi reports."""

    def command(self, packages_wanted: Sequence[str], family: str, smi: bool) -> str:
        self.asked = tuple(packages_wanted), family
        return complete(state.state_command(packages_wanted, family, smi))

    def parse(self, lines: list[str]) -> state.GpuState:
        return state.parse_state(lines, *self.asked)


class GdsCheck(Answer[str]):
    """What ``gdscheck -p`` prints; empty where it is not installed."""

    def command(self) -> str:
        return complete(f"{{ {storage.GDSCHECK}; }} 2>&1; case $? in 127) echo 127;; esac")

    def parse(self, lines: list[str]) -> str:
        return "" if lines and lines[-1] == "127" else "\n".join(lines) + "\n"


class Runtimes(Answer[runtimes.RuntimeState]):
    """How container runtimes hand out GPUs."""

    def command(self) -> str:
        return complete(runtimes.state_command())

    def parse(self, lines: list[str]) -> runtimes.RuntimeState:
        return runtimes.parse_state(lines)
