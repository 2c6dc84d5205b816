"""Operations on GPUs and their driver: ask once, plan, carry out with one command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyinfra.api.command import StringCommand
from pyinfra.context import host, inventory, state

from rackproof.configure import operations, rack_operations
from rackproof.configure.files import reboot_mark
from rackproof.configure.gpu import facts, install, scripts, storage, tools, tuning
from rackproof.configure.gpu import runtimes as runtime_plans
from rackproof.configure.gpu.driver import secure_boot_problem
from rackproof.configure.gpu.inputs import GpuInputs
from rackproof.configure.gpu.state import GpuState
from rackproof.configure.operation import Commands, ask, operation, record, record_reasons
from rackproof.configure.package_transaction.transaction import Package
from rackproof.configure.rollback.run import carried_out, journal_here, journaled
from rackproof.configure.units import Unit
from rackproof.configure.versions.site import policy_here
from rackproof.core.architecture import Gpu
from rackproof.core.machine import Machine
from rackproof.core.nvlink_domain import domain_problem
from rackproof.core.plan import Change
from rackproof.errors import Refused
from rackproof.parse import ParseError
from rackproof.parse.gdscheck import parse_gdscheck


@operation()
def installed(packages: Sequence[Package], family: str, hold: bool) -> Commands:
    """Install what is missing or of another version, in one transaction, and hold what has a version.

    + packages: with exact versions, with a prefix (``580.126.20-*``), or at any version
    + family: ``debian`` (apt) or ``rhel`` (dnf)
    + hold: whether packages with a version are held (apt-mark hold, dnf versionlock)

    **Example:**

    .. code:: python

        gpu.installed(
            name="Tools", packages=[Package("libnccl2", "2.28.3-1+cuda13.0")], family="debian", hold=True
        )
    """
    names = [package.name for package in packages]
    actual = ask(facts.GpuFacts, "the list of installed packages", packages_wanted=names, family=family, smi=False)
    missing = [package for package in packages if not package.satisfied_by(actual.packages.get(package.name))]
    unheld = [
        package.name for package in packages if hold and package.version is not None and package.name not in actual.held
    ]
    have = {name: f"installed: {version}" for name, version in actual.packages.items()}
    changes = [Change(what=package.spec, why=have.get(package.name, "not installed")) for package in missing]
    changes += [Change(what=f"hold {name}") for name in unheld]
    hold_again = scripts.held_by(missing, unheld, family, hold)
    script = scripts.transaction(missing, hold_again, family, policy_here()) if changes else ""
    kept = scripts.kept_packages(missing, unheld, family)
    yield from carried_out(script, changes, f"all {len(packages)} packages are installed", kept)


@operation()
def driver(target: install.WantedDriver, machine: Machine) -> Commands:
    """Install the driver, rebuild the initial file system, load missing modules, mark what needs a reboot.

    + target: desired driver (``install.WantedDriver``)
    + machine: the node's operating system and devices

    **Example:**

    .. code:: python

        gpu.driver(name="Driver", target=plan.wanted(planned, entries), machine=machine)
    """
    actual = _driver_state(target, machine)
    if problem := secure_boot_problem(machine, target.choice, actual.key_enrolled):
        raise Refused(problem)
    plan = install.plan_driver(target, actual)
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
    actual = _driver_state(target, machine)
    if state.is_executing or actual.loaded is not None:
        return install.in_force(target, actual)
    return not any(name in actual.modules for name in install.OTHERS)


@operation()
def driver_units(wanted: Sequence[Unit], target: install.WantedDriver, machine: Machine) -> Commands:
    """As ``operations.units``; services of a driver that waits for a reboot are enabled and start with it.

    + wanted: units in the order in which they are started
    + target: desired driver (``install.WantedDriver``)
    + machine: the node's operating system and devices

    **Example:**

    .. code:: python

        gpu.driver_units(name="Services", wanted=plan.units(planned), target=target, machine=machine)
    """
    usable = _usable(target, machine)
    units = wanted if usable else [replace(unit, running=None, proof=None) for unit in wanted]
    yield from operations.units._inner(wanted=list(units))


@operation()
def gpudirect_dmabuf(target: install.WantedDriver, machine: Machine) -> None:
    """Refuse a node whose kernel or loaded driver lacks DMA-BUF. Changes nothing.

    + target: desired driver (``install.WantedDriver``)
    + machine: the node's operating system and devices

    A node that waits for a reboot is not judged: the reboot may bring another kernel, driver or network stack.

    **Example:**

    .. code:: python

        gpu.gpudirect_dmabuf(name="DMA-BUF", target=target, machine=machine)
    """
    actual = _driver_state(target, machine)
    if actual.reboots or not install.in_force(target, actual):
        host.noop("DMA-BUF is looked for when the driver is in force")
        return
    problem = install.dmabuf_problem(actual)
    if problem and state.is_executing:
        raise Refused(problem)
    else:
        host.noop(problem or "the kernel's RDMA core has DMA-BUF, and the loaded driver is the open one")


@operation()
def tuned(wanted: tuning.Tuning, machine: Machine) -> Commands:
    """Set limits, clocks, ECC and MIG with the script that sets them at every boot, and read them back.

    + wanted: settings of every GPU
    + machine: the node's operating system and devices

    **Example:**

    .. code:: python

        gpu.tuned(name="Settings", wanted=planned.tuning, machine=machine)
    """
    actual = ask(facts.GpuFacts, "what GPUs are set to", packages_wanted=[], family=machine.family, smi=True)
    if actual.smi is None:
        if actual.loaded is not None and actual.smi_problem and not actual.reboots:
            raise Refused(f"nvidia-smi gives no report: {actual.smi_problem}")
        else:
            host.noop(f"{tuning.SERVICE} sets them when the driver is loaded")
        return
    plan = tuning.differences(wanted, actual.smi, actual.listed)
    if plan.busy and plan.now:
        raise Refused(
            f"MIG cannot be changed while programs use the GPUs: {', '.join(plan.busy)}; drain the node and run again"
        )
    new = [mark for mark in plan.pending if mark not in actual.reboots]
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
    actual = host.get_fact(facts.GpuFacts, packages_wanted=[], family=machine.family, smi=True)
    if actual is None or actual.smi is None:
        raise Refused(f"the GPUs' settings could not be read back: {actual.smi_problem if actual else 'no answer'}")
    left = tuning.differences(wanted, actual.smi, actual.listed)
    if left.pending:
        record(Change(what=mark, reboot=mark) for mark in left.pending)
        yield StringCommand("; ".join(reboot_mark(mark) for mark in left.pending))
    if left.now:
        raise Refused(f"settings did not take effect: {'; '.join(left.now)}")


@operation()
def nvlink_domain(declared: Mapping[str, str | None]) -> None:
    """Refuse a node whose GPUs are in another NVLink domain than the inventory says. Changes nothing.

    + declared: domain of every GPU node (``rackproof.core.nvlink_domain.declared_domains``)

    **Example:**

    .. code:: python

        gpu.nvlink_domain(name="NVLink domain", declared={"tray-01": "rack-1", "tray-19": "rack-2"})
    """
    ask(facts.NvlinkDomains, "the NVLink domain of the GPUs")
    reported = {
        name: rack_operations.ask_node(
            inventory.get_host(name), "NVLink domain", lambda other: other.get_fact(facts.NvlinkDomains)
        )
        for name in declared
    }
    problem = domain_problem(host.name, declared, reported)
    if problem and state.is_executing:
        raise Refused(f"gpu.imex.domain: {problem}; correct the inventory, or the cabling")
    host.noop(f"{sum(map(bool, reported.values()))} of {len(declared)} GPU nodes report their NVLink domain")


@operation()
def gpudirect_storage(declared: Gpu, stack: GpuInputs, target: install.WantedDriver, machine: Machine) -> Commands:
    """Load nvidia-fs, and refuse a node where gdscheck does not report every declared file system as supported.

    + declared: GPUs of the architecture
    + stack: the inventory's ``gpu``
    + target: desired driver (``install.WantedDriver``)
    + machine: the node's operating system and devices

    **Example:**

    .. code:: python

        gpu.gpudirect_storage(
            name="GPUDirect Storage", declared=declared, stack=planned.stack, target=target, machine=machine
        )
    """
    usable = _usable(target, machine)
    if not usable or (not state.is_executing and host.get_fact(facts.GdsCheck) == ""):
        host.noop("gdscheck is asked when driver and GPUDirect Storage are there")
        return
    wrong = _gds_problems(declared, stack)
    if not wrong:
        host.noop(f"GPUDirect Storage works: {', '.join(declared.gds)}")
        return
    if stack.gds_method == "nvidia-fs":
        record([Change(what="module nvidia-fs", why="; ".join(wrong))])
        yield StringCommand(
            "[ -d /sys/module/nvidia_fs ] || timeout 120 modprobe nvidia-fs || { echo 'nvidia-fs cannot be loaded:"
            " it must be built for the running kernel and the loaded driver (dkms status)' >&2; exit 1; }"
        )
        wrong = _gds_problems(declared, stack) if state.is_executing else ()
    if wrong:
        raise Refused(f"GPUDirect Storage: {'; '.join(wrong)}")


def _gds_problems(declared: Gpu, stack: GpuInputs) -> tuple[str, ...]:
    output = host.get_fact(facts.GdsCheck)
    if not output:
        return ("gdscheck is not installed" if output == "" else "gdscheck does not answer",)
    try:
        return storage.problems(parse_gdscheck(output), declared, stack)
    except ParseError as error:
        return (str(error),)


@operation()
def runtimes(wanted: Sequence[str], owned: Sequence[str]) -> Commands:
    """Configure container runtimes to hand out GPUs, and write the CDI specification for the driver in force.

    + wanted: ``docker``, ``containerd``, …
    + owned: runtimes whose configuration another deploy writes

    **Example:**

    .. code:: python

        gpu.runtimes(name="Runtimes", wanted=["containerd"], owned=[])
    """
    actual = ask(facts.Runtimes, "the container runtimes")
    plan = runtime_plans.plan(wanted, actual, installing=not state.is_executing, owned=owned)
    yield from journaled(plan, "container runtimes hand out GPUs")


@operation()
def built(tool: tools.Tool) -> Commands:
    """Build programs that measure GPUs from their declared sources, where the node lacks them, or has others.

    + tool: name, sources and programs (``tools.wanted``)

    **Example:**

    .. code:: python

        gpu.built(name="Build nvbandwidth", tool=tools.wanted(stack)[0])
    """
    actual = ask(facts.BuiltTools, "the programs that were built")
    yield from journaled(tools.plan(tool, actual), f"{tool.name} is built from the declared sources")
