"""Questions to a node about its GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.configure.facts import Answer, answer, complete
from rackproof.configure.gpu import runtimes, state, storage, tools
from rackproof.parse.nvlink_domain import DOMAIN, parse_nvlink_domains


class GpuFacts(Answer[state.GpuState]):
    """Driver, packages, units and what nvidia-smi reports."""

    def command(self, packages_wanted: Sequence[str], family: str, smi: bool) -> str:
        self.asked = tuple(packages_wanted), family
        return complete(state.state_command(packages_wanted, family, smi))

    def parse(self, lines: list[str]) -> state.GpuState:
        return state.parse_state(lines, *self.asked)


NvlinkDomains = answer("NvlinkDomains", DOMAIN, parse_nvlink_domains)
"""NVLink domains of the node's GPUs; empty without a driver."""

GdsCheck = answer(
    "GdsCheck",
    f"{{ {storage.GDSCHECK}; }} 2>&1; case $? in 127) echo 127;; esac",
    lambda lines: "" if lines and lines[-1] == "127" else "\n".join(lines) + "\n",
)
"""Output of ``gdscheck -p``; empty where it is not installed."""

Runtimes = answer("Runtimes", runtimes.state_command, runtimes.parse_state)
"""How container runtimes hand out GPUs."""

BuiltTools = answer("BuiltTools", tools.STATE, tools.parse_state)
"""Sources and unchanged programs of what was built on the node, by tool."""
