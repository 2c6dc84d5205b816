"""Command lines that start the processes of all nodes, fitted to the MPI that is there. Pure."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Final

from rackproof.bench.relay import AGENT
from rackproof.bench.user import HOME
from rackproof.parse import ParseError
from rackproof.parse.mpi_probe import TOOL, MpiFound, Mpirun

INTERFACE: Final = "OMPI_MCA_btl_tcp_if_include"
SINGLETON: Final = {"OMPI_MCA_ess_singleton_isolated": "1"}
"""Environment of a program with MPI that nothing launches: Open MPI 4 would start a daemon, for which it wants ``ssh``
or ``rsh`` on the node (tried with 4.1.4 and 4.1.6)."""
OLDEST: Final = (4, 1)
"""Open MPI; older ones do not know ``--map-by ppr:N:node:OVERSUBSCRIBE`` together with ``--host``."""


def mpirun(nodes: Sequence[str], ranks_per_node: int, interface: str, path: str = "mpirun") -> str:
    """Command line of Open MPI. Its daemons start and end with the relay; control and data use one interface.

    Open MPI 4 and 5 have other names for the same parameters and ignore those of the other in the environment; on the
    command line 5 complains (tried with 4.1.4 and 5.0.7). A path that is not on the PATH also names the folder of the
    daemons. HPC-X has collectives of its own (hcoll, UCC), which take adapters: they are left out.
    """
    hosts = ",".join(f"{node}:{ranks_per_node}" for node in nodes)
    agent, interface = shlex.quote(AGENT), shlex.quote(interface)
    own = "" if path == "mpirun" else "--mca coll ^hcoll,ucc "
    return (
        f"env OMPI_MCA_plm_rsh_agent={agent} PRTE_MCA_plm_ssh_agent={agent} "
        "OMPI_MCA_plm_rsh_no_tree_spawn=1 PRTE_MCA_plm_ssh_no_tree_spawn=1 "
        "OMPI_MCA_orte_leave_session_attached=1 PRTE_MCA_prte_leave_session_attached=1 "
        f"OMPI_MCA_oob_tcp_if_include={interface} PRTE_MCA_prte_if_include={interface} "
        f"{shlex.quote(path)} -n {len(nodes) * ranks_per_node} --host {shlex.quote(hosts)} "
        f"--map-by ppr:{ranks_per_node}:node:OVERSUBSCRIBE --bind-to none "
        f"{own}--mca btl tcp,self --mca pml ob1 --mca btl_tcp_if_include {interface}"
    )


def mpi_environment(interface: str) -> dict[str, str]:
    """Environment for Open MPI under ``srun``, which has no options for it: data use one interface, as with mpirun."""
    return {
        "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1", INTERFACE: interface, "OMPI_MCA_coll": "^hcoll,ucc",
    }  # fmt: skip


def exported(environment: Mapping[str, str]) -> str:
    """Options of ``mpirun``, each with a blank before it."""
    return "".join(f" -x {name}={shlex.quote(value)}" for name, value in environment.items())


def set_before(environment: Mapping[str, str]) -> str:
    """``env …`` before a command, with a blank after it; empty without variables."""
    words = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    return f"env {words} " if words else ""


def srun(
    nodes: Sequence[str],
    ranks_per_node: int,
    environment: Mapping[str, str],
    limit_s: float,
    *,
    mpi: bool,
    gpus: bool,
    partition: str | None,
) -> str:
    """Command line of Slurm. The job ends after ``limit_s`` even without its client, and as a whole if a rank fails."""
    options = [
        f"--nodes={len(nodes)}", f"--ntasks={len(nodes) * ranks_per_node}", f"--ntasks-per-node={ranks_per_node}",
        f"--nodelist={','.join(nodes)}", "--distribution=block", "--exclusive", "--mem=0", "--cpu-bind=none",
        "--export=ALL", "--kill-on-bad-exit=1", "--wait=30", "--immediate=60", "--job-name=rackproof",
        f"--time={math.ceil(limit_s / 60)}", f"--chdir={HOME}", f"--mpi={'pmix' if mpi else 'none'}",
    ]  # fmt: skip
    options += [f"--gpus-per-node={ranks_per_node}"] if gpus else []
    options += [f"--partition={partition}"] if partition else []
    return f"{set_before(environment)}srun {shlex.join(options)}"


def chosen_mpirun(probed: Mapping[str, MpiFound], with_mpi4py: bool) -> str:
    """The command of the MPI that suits all nodes: ``mpirun`` if it is on their PATH, else its path.

    ``probed``: by node, the launcher first. Raises ParseError, one line, if none suits.
    """
    launcher = next(iter(probed))
    faults = []
    for candidate in probed[launcher].launchers:
        fault = next(
            (fault for node, there in probed.items() if (fault := _fault(candidate, node, there, with_mpi4py))), None
        )
        if fault is None:
            same = [own for there in probed.values() for own in there.launchers if _same(own, candidate)]
            everywhere = all(own.default for own in same)
            return "mpirun" if everywhere else candidate.path
        faults.append(fault)
    raise ParseError(TOOL, "; ".join(dict.fromkeys(faults)) or f"{launcher} has no MPI")


def _fault(candidate: Mpirun, node: str, probed: MpiFound, with_mpi4py: bool) -> str | None:
    there = next((own for own in probed.launchers if _same(own, candidate)), None)
    if candidate.version is None or candidate.version[:2] < OLDEST:
        return f"{candidate.path} is {candidate.text or 'unknown'}, expected Open MPI {OLDEST[0]}.{OLDEST[1]} or newer"
    if there is None:
        return f"{node} has no {candidate.path}"
    if there.version != candidate.version:
        return f"{candidate.path} is {there.text} on {node}, expected {candidate.text}"
    if with_mpi4py and (probed.library_version is None or probed.library_version[:2] != candidate.version[:2]):
        return f"{candidate.path} is {candidate.text}, mpi4py of {node} is built against {probed.library or 'nothing'}"
    return None


def _same(one: Mpirun, other: Mpirun) -> bool:
    return one.path == other.path
