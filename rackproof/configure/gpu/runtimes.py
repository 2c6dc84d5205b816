"""NVIDIA's container toolkit in Docker, containerd and, through CDI, in everything else. Pure.

The runtime's own report counts, not its configuration file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rackproof import shell
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.rollback.journal import Later, later, mark_lines
from rackproof.configure.script_plan import ScriptPlan
from rackproof.core.architecture import Containers
from rackproof.core.plan import Change
from rackproof.errors import DeclarationError, Refused
from rackproof.parse.containers import parse_containerd_runtime, parse_docker_runtimes
from rackproof.parse.sections import sections_of

CDI: Final = "/etc/cdi/nvidia.yaml"
CDI_SERVICE: Final = "rackproof-cdi.service"
RUNTIME: Final = "nvidia"
_OTHER_TOML: Final = (
    "for rp_f in /etc/containerd/conf.d/*.toml; do case $rp_f in */99-nvidia.toml) ;;"
    ' *) [ ! -f "$rp_f" ] || {} ;; esac; done'
)
CONFIGURED: Final[Mapping[str, tuple[Later, ...]]] = {
    "docker": (later("/etc/docker/daemon.json"),),
    "containerd": (
        later("/etc/containerd/config.toml"),
        later("/etc/containerd/conf.d/99-nvidia.toml"),
        Later(_OTHER_TOML.format('rp_file "$rp_f" later -'), _OTHER_TOML.format('rp_wrote "$rp_f"')),
    ),
}
"""Files that ``nvidia-ctk`` and the kit write, for the journal."""


def owned(declared: Containers | None, groups: Collection[str]) -> tuple[str, ...]:
    """The runtime that the architecture declares with GPUs for these roles."""
    if declared is None or not set(declared.roles) & set(groups):
        return ()
    return (declared.runtime,) if declared.nvidia_runtime or declared.cdi else ()


def handing_out(declared: Containers | None, groups: Collection[str], stack: GpuInputs) -> tuple[str, ...]:
    """Runtimes that give GPUs to containers on a node of these roles. Raises DeclarationError."""
    own = owned(declared, groups)
    here = declared.runtime if declared and not own and set(declared.roles) & set(groups) else None
    if here in CONFIGURED and here in stack.runtimes:
        raise DeclarationError(
            f"gpu.runtimes: {here}: the architecture declares it without GPUs, and two deploys would write its"
            " configuration; declare containers.nvidia_runtime or containers.cdi"
        )
    return stack.runtimes or own


def with_runtime(declared: Containers | None, wanted: Sequence[str], owned: Collection[str]) -> tuple[str, ...]:
    """Runtimes of ``wanted`` that need NVIDIA's runtime: with CDI alone a runtime reads the specification."""
    by_cdi = owned if declared is not None and not declared.nvidia_runtime else ()
    return tuple(name for name in wanted if name not in by_cdi)


@dataclass(frozen=True, slots=True)
class RuntimeState:
    docker: bool | None
    """Docker has the runtime; None where Docker is not installed or does not answer."""
    containerd: bool | None
    containerd_systemd: bool
    """Control groups of containers with NVIDIA's runtime are systemd's."""
    cdi_version: str
    """Driver that the CDI specification was written for; empty where there is none."""
    driver: str
    """Driver in force."""


def state_command() -> str:
    """Five sections, divided by ``--``."""
    return shell.script(__name__, "runtimes", cdi=CDI)


def parse_state(lines: Sequence[str]) -> RuntimeState:
    """Answer of ``state_command``. Raises ValueError on anything else."""
    docker, containerd, cdi, driver, _ = sections_of([line.strip() for line in lines], 5)
    known = parse_docker_runtimes(docker[0]) if docker and docker[0].startswith("{") else frozenset()
    handed_out, by_systemd = parse_containerd_runtime(containerd[1:], RUNTIME)
    return RuntimeState(
        docker=None if not docker else RUNTIME in known,
        containerd=None if not containerd else handed_out,
        containerd_systemd=by_systemd,
        cdi_version=cdi[0].removeprefix("libcuda.so.") if cdi else "",
        driver=driver[0] if driver else "",
    )


def plan(wanted: Sequence[str], state: RuntimeState, installing: bool = False, owned: Sequence[str] = ()) -> ScriptPlan:
    """Commands that make runtimes hand out GPUs. ``installing``: runtimes and toolkit are installed later in the same
    run. ``owned``: runtimes whose configuration another deploy writes, with the toolkit in it; they need a restart at
    most.

    Raises Refused, one line.
    """
    lines: list[str] = []
    reasons: list[str] = []
    configured: list[str] = []
    with_gpus = {"docker": state.docker, "containerd": state.containerd}
    for name in wanted:
        if name not in with_gpus:
            continue  # podman and enroot read the CDI specification, or bring a hook of their own
        if with_gpus[name] is None and not installing:
            raise Refused(f"{name} is to hand out GPUs and does not answer on this node; install it first")
        if with_gpus[name] and (name != "containerd" or state.containerd_systemd):
            continue
        reasons.append(f"{name} hands out GPUs")
        configured += [] if name in owned else [name]
        lines += [*(() if name in owned else _configure(name)), *_restart(name)]
    if state.driver and state.cdi_version != state.driver:
        reasons.append(f"CDI specification for driver {state.driver} instead of {state.cdi_version or 'none'}")
        lines += [
            f"systemctl restart {CDI_SERVICE} || fail 'nvidia-ctk cdi generate failed: journalctl -u {CDI_SERVICE}'",
            f"[ -s {CDI} ] || fail '{CDI} was not written'",
        ]
    return ScriptPlan(
        tuple(lines),
        tuple(Change(what=reason) for reason in reasons),
        mark_lines([f"restart:{name}.service" for name in configured]),
        tuple(entry for name in configured for entry in CONFIGURED[name]),
        head=('fail() { echo "$1" >&2; exit 1; }',),
    )


_OPTIONS: Final = r"/\.runtimes\..\{0,1\}nvidia.\{0,1\}\.options\] *$/"
"""Address of sed: the section in a file of containerd that nvidia-ctk writes, in whichever quotes."""


def _configure(name: str) -> list[str]:
    command = f"timeout 60 nvidia-ctk runtime configure --runtime={name} >/dev/null"
    lines = [f"{command} || fail 'nvidia-ctk could not configure {name}'"]
    if name == "containerd":
        # Two managers of control groups on one node: pods lose their devices at every daemon-reload of systemd.
        # Where runc has no such line nvidia-ctk writes none either.
        lines += [
            'for f in /etc/containerd/config.toml /etc/containerd/conf.d/*.toml; do [ ! -f "$f" ] ||'
            " sed -i -e 's/^\\( *SystemdCgroup *= *\\)false/\\1true/'"
            f" -e '{_OPTIONS},/^ *\\[/{{/^ *SystemdCgroup/d}}' -e '{_OPTIONS}a SystemdCgroup = true' \"$f\"; done"
        ]
    return lines


def _restart(name: str) -> list[str]:
    """Restart Docker, and check that it knows the runtime."""
    proof = {
        "docker": f"timeout 60 docker info -f '{{{{json .Runtimes}}}}' | grep -q '\"{RUNTIME}\"'",
        "containerd": "timeout 60 containerd config dump"
        " | awk '/^ *\\[/ {own = /\\.runtimes\\..?nvidia.?(\\.options)?\\]/}"
        " own && /^ *SystemdCgroup *= *true/ {found = 1} END {exit !found}'",
    }[name]
    how = ", with systemd for its control groups" if name == "containerd" else ""
    return [
        f"systemctl restart {name}",
        f"{proof} || fail '{name} does not know the runtime {RUNTIME} after its restart{how}'",
    ]
