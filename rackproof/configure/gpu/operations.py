"""Operations on GPUs and their driver: ask once, plan, carry out with one command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace

from pyinfra.api.command import StringCommand
from pyinfra.context import host, state

from rackproof.configure import facts as shared_facts
from rackproof.configure import operations
from rackproof.configure.files import reboot_mark
from rackproof.configure.gpu import facts, install, scripts, storage, tuning
from rackproof.configure.gpu import runtimes as runtime_plans
from rackproof.configure.gpu.driver import secure_boot_problem
from rackproof.configure.gpu.inputs import GpuStack
from rackproof.configure.gpu.state import GpuState
from rackproof.configure.operation import Commands, ask, operation, record, record_reasons
from rackproof.configure.package_transaction.transaction import Package
from rackproof.configure.rollback.journal import file_line
from rackproof.configure.rollback.run import journal_here
from rackproof.configure.units import Unit
from rackproof.configure.versions.site import policy_here
from rackproof.core.architecture import Gpu
from rackproof.core.machine import Machine
from rackproof.core.plan import Change
from rackproof.errors import Refused
from rackproof.parse import ParseError
from rackproof.parse.gdscheck import parse_gdscheck


@operation()
def refused(reason: str) -> Commands:
    """Fail on this node, with one line."""
    raise Refused(reason)


@operation()
def signing_key(path: str, url: str, sha256: str, family: str) -> Commands:
    """Bring the key that a repository's lists are signed with, if its digest is the declared one."""
    found = ask(shared_facts.FileStates, "the key of the repository", paths=[path], texts=[])
    if path in found and found[path].sha256 == sha256:
        host.noop(f"{path} is the declared key")
        return
    new = shlex.quote(f"{path}.new")
    if family == "debian":
        fetch = f"/usr/lib/apt/apt-helper download-file {shlex.quote(url)} {new} SHA256:{sha256} >&2"
    else:
        fetch = f"timeout 120 curl -fsSL -o {new} -- {shlex.quote(url)}"
    message = shlex.quote(f"{url}: not the key with sha256 {sha256}; compare the new one with the vendor's page")
    script = (
        f"set -eu; umask 022; mkdir -p {shlex.quote(path.rpartition('/')[0])}; "
        f"{fetch} && echo {sha256}'  '{new} | sha256sum -c --quiet - >&2 "
        f"|| {{ rm -f -- {new}; echo {message} >&2; exit 1; }}; chmod 644 {new}; mv -f -- {new} {shlex.quote(path)}"
    )
    yield StringCommand(journal_here().before([file_line(path, sha256)], script))


@operation()
def installed(packages: Sequence[Package], family: str, hold: bool) -> Commands:
    """Install what is missing or of another version, in one transaction, and hold what has a version.

    + packages: with exact versions, with a beginning (``580.126.20-*``), or at any version
    + family: ``debian`` (apt) or ``rhel`` (dnf)
    + hold: whether packages with a version are held (apt-mark hold, dnf versionlock)

    **Example:**

    .. code:: python

        operations.installed(
            name="Tools", packages=[Package("libnccl2", "2.28.3-1+cuda13.0")], family="debian", hold=True
        )
    """
    names = [package.name for package in packages]
    found = ask(facts.GpuFacts, "the list of installed packages", packages_wanted=names, family=family, smi=False)
    missing = [each for each in packages if not each.satisfied_by(found.packages.get(each.name))]
    unheld = [each.name for each in packages if hold and each.version is not None and each.name not in found.held]
    if missing or unheld:
        kept = scripts.kept_packages(missing, unheld, family)
        hold_again = scripts.held_by(missing, unheld, family, hold)
        yield StringCommand(
            journal_here().before(kept, scripts.transaction(missing, hold_again, family, policy_here()))
        )
    else:
        host.noop(f"all {len(packages)} packages are installed")


@operation()
def driver(target: install.WantedDriver, machine: Machine) -> Commands:
    """Install the driver, rebuild the initial file system, load what is not loaded, say what needs a reboot."""
    found = _driver_state(target, machine)
    if problem := secure_boot_problem(machine, target.choice, found.key_enrolled):
        raise Refused(problem)
    plan = install.plan_driver(target, found)
    record_reasons(plan.reasons)
    record(Change(what=mark, reboot=mark) for mark in plan.marks)
    if plan:
        kept, later = scripts.kept(plan, target, machine)
        yield StringCommand(journal_here().before(kept, scripts.script(plan, target, machine, policy_here()), later))
    elif plan.waiting:
        host.noop(f"{target.choice.label} waits for a reboot: {'; '.join(plan.waiting)}")
    else:
        host.noop(f"{target.choice.label} is in force")


def _driver_state(target: install.WantedDriver, machine: Machine) -> GpuState:
    names = [package.name for package in target.packages]
    return ask(facts.GpuFacts, "the state of the GPU driver", packages_wanted=names, family=machine.family, smi=False)


def _usable(target: install.WantedDriver, machine: Machine) -> bool:
    """Whether the declared driver can be used; before the run, whether it will be. Raises Unreadable."""
    found = _driver_state(target, machine)
    if state.is_executing or found.loaded is not None:
        return install.in_force(target, found)
    return not any(name in found.modules for name in install.OTHERS)


@operation()
def driver_units(wanted: Sequence[Unit], target: install.WantedDriver, machine: Machine) -> Commands:
    """As ``operations.units``; services of a driver that waits for a reboot are enabled and start with it."""
    usable = _usable(target, machine)
    units = wanted if usable else [replace(unit, running=None, proof=None) for unit in wanted]
    yield from operations.units._inner(wanted=list(units))


@operation()
def gpudirect_dmabuf(target: install.WantedDriver, machine: Machine) -> None:
    """Fail where DMA-BUF is promised and what is in force does not offer it. Changes nothing.

    Before a reboot that is waited for nobody can say: it may bring kernel, driver or network stack.
    """
    found = _driver_state(target, machine)
    if found.reboots or not install.in_force(target, found):
        host.noop("DMA-BUF is looked for when the driver is in force")
        return
    problem = install.dmabuf_problem(found)
    if problem and state.is_executing:
        raise Refused(problem)
    else:
        host.noop(problem or "the kernel's RDMA core has DMA-BUF, and the loaded driver is the open one")


@operation()
def tuned(wanted: tuning.Tuning, machine: Machine) -> Commands:
    """Limits, clocks, ECC and MIG as declared, through the script that sets them at every boot; then read back."""
    found = ask(facts.GpuFacts, "what GPUs are set to", packages_wanted=[], family=machine.family, smi=True)
    if found.smi is None:
        if found.loaded is not None and found.smi_problem and not found.reboots:
            raise Refused(f"nvidia-smi gives no report: {found.smi_problem}")
        else:
            host.noop(f"{tuning.SERVICE} sets them when the driver is loaded")
        return
    plan = tuning.differences(wanted, found.smi, found.listed)
    if plan.busy and plan.now:
        raise Refused(
            f"MIG cannot be changed while programs use the GPUs: {', '.join(plan.busy)}; drain the node and run again"
        )
    new = [mark for mark in plan.pending if mark not in found.reboots]
    record_reasons(plan.now)
    record(Change(what=mark, reboot=mark) for mark in new)
    if plan.now:
        yield StringCommand(
            f"systemctl restart {tuning.SERVICE} || {{ journalctl -u {tuning.SERVICE} -n 3 -o cat --no-pager >&2;"
            f" echo 'settings of GPUs: {tuning.SERVICE} failed' >&2; exit 1; }}"
        )
        if state.is_executing:
            yield from _read_back(wanted, machine)
    elif new:
        yield StringCommand("; ".join(reboot_mark(mark) for mark in new))
    else:
        host.noop("GPUs are set as declared" if not plan.pending else f"waits for a reboot: {'; '.join(plan.pending)}")


def _read_back(wanted: tuning.Tuning, machine: Machine) -> Commands:
    found = host.get_fact(facts.GpuFacts, packages_wanted=[], family=machine.family, smi=True)
    if found is None or found.smi is None:
        raise Refused(f"what GPUs are set to could not be read back: {found.smi_problem if found else 'no answer'}")
    left = tuning.differences(wanted, found.smi, found.listed)
    if left.pending:
        record(Change(what=mark, reboot=mark) for mark in left.pending)
        yield StringCommand("; ".join(reboot_mark(mark) for mark in left.pending))
    if left.now:
        raise Refused(f"asked for and not in force: {'; '.join(left.now)}")


@operation()
def gpudirect_storage(declared: Gpu, stack: GpuStack, target: install.WantedDriver, machine: Machine) -> Commands:
    """Load nvidia-fs, and fail where gdscheck does not say that every promised file system is reached directly."""
    usable = _usable(target, machine)
    if not usable or (not state.is_executing and host.get_fact(facts.GdsCheck) == ""):
        host.noop("gdscheck is asked when driver and GPUDirect Storage are there")
        return
    wrong = _gds_problems(declared, stack)
    if not wrong:
        host.noop(f"GPUDirect Storage works: {', '.join(declared.gds)}")
        return
    if stack.gds_method == "nvidia-fs":
        yield StringCommand(
            "[ -d /sys/module/nvidia_fs ] || timeout 120 modprobe nvidia-fs || { echo 'nvidia-fs cannot be loaded:"
            " it must be built for the running kernel and the loaded driver (dkms status)' >&2; exit 1; }"
        )
        wrong = _gds_problems(declared, stack) if state.is_executing else ()
    if wrong:
        raise Refused(f"GPUDirect Storage: {'; '.join(wrong)}")


def _gds_problems(declared: Gpu, stack: GpuStack) -> tuple[str, ...]:
    said = host.get_fact(facts.GdsCheck)
    if not said:
        return ("gdscheck is not installed" if said == "" else "gdscheck does not answer",)
    try:
        return storage.problems(parse_gdscheck(said), declared, stack)
    except ParseError as error:
        return (str(error),)


@operation()
def runtimes(wanted: Sequence[str], owned: Sequence[str]) -> Commands:
    """Container runtimes hand out GPUs, and the CDI specification is that of the driver in force."""
    found = ask(facts.Runtimes, "the container runtimes")
    plan = runtime_plans.plan(wanted, found, installing=not state.is_executing, owned=owned)
    record_reasons(plan.reasons)
    if plan:
        yield StringCommand(journal_here().before(plan.kept, plan.script, plan.later))
    else:
        host.noop("container runtimes hand out GPUs")
