"""Kernel release, command line, modules, DKMS, Secure Boot, mitigations, and errors in its log."""

from __future__ import annotations

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.parse.answer import STATUS
from rackproof.parse.dkms import parse_dkms_status
from rackproof.parse.kernel import (
    ALWAYS_LISTED,
    SECURE_BOOT,
    VULNERABILITIES,
    in_cmdline,
    in_force,
    is_unknown,
    is_vulnerable,
    parse_cmdline,
    parse_modules,
    parse_release,
    parse_secure_boot,
    parse_vulnerabilities,
)
from rackproof.parse.kernel_complaints import complaints_in
from rackproof.parse.kernel_events import EVENTS, OF_SLOWNESS, events_in
from rackproof.parse.meminfo import HUGEPAGES, parse_hugepages
from rackproof.parse.packages import is_version
from rackproof.parse.sysfs import parse_clock_source
from rackproof.validation import Unmeasured, always, announce, answered, check, expect, expect_all, read
from rackproof.validation.kernel_messages import EVENT_LOG, kernel_messages, quoted

RELEASE = "uname -r"
CMDLINE = "cat /proc/cmdline" + STATUS
MODULES = (
    'cat /proc/modules && echo built in && sed -n "s/.*[/]//;s/[.]ko.*//p" "/lib/modules/$(uname -r)/modules.builtin"'
) + STATUS
DKMS = "dkms status" + STATUS
CLOCK_SOURCE = "cat /sys/devices/system/clocksource/clocksource0/current_clocksource"


@check(
    "os.kernel",
    reads="system.kernel",
    protects="Drivers are built for one kernel; with another the node lacks GPUs, fabric or file systems.",
    hint="Compare uname -r with the boot loader's default; reboot into the expected kernel, and hold its package.",
)
def test_kernel(host: Host, arch: Architecture) -> None:
    release = parse_release(read(host, RELEASE))
    if not is_version(release, arch.system.kernel or ""):
        raise AssertionError(f"kernel: expected {arch.system.kernel}, actual {release}")


def arguments(host: Host) -> tuple[str, ...]:
    return parse_cmdline(answered(host, CMDLINE, "/proc/cmdline").body)


@check(
    "os.cmdline_required",
    reads="system.cmdline_required",
    protects="A missing kernel argument (iommu=pt, for example) can halve a bandwidth without any error.",
    hint="cat /proc/cmdline, where the last argument of a name counts; update-grub (or grub2-mkconfig) applies "
    "/etc/default/grub, then reboot.",
)
def test_cmdline_required(host: Host, arch: Architecture) -> None:
    cmdline = arguments(host)
    missing = [argument for argument in arch.system.cmdline_required if not in_force(argument, cmdline)]
    if missing:
        raise AssertionError(f"expected on the kernel's command line, actual missing: {', '.join(missing)}")


@check(
    "os.cmdline_forbidden",
    reads="system.cmdline_forbidden",
    protects="Arguments left over from debugging hide errors or slow the node down.",
    hint="cat /proc/cmdline; remove it from /etc/default/grub, run update-grub, reboot.",
)
def test_cmdline_forbidden(host: Host, arch: Architecture) -> None:
    cmdline = arguments(host)
    there = [argument for argument in arch.system.cmdline_forbidden if in_cmdline(argument, cmdline)]
    if there:
        raise AssertionError(f"expected not on the kernel's command line, actual present: {', '.join(there)}")


def module_states(host: Host) -> dict[str, str]:
    return parse_modules(answered(host, MODULES, "/proc/modules").body)


@check(
    "os.modules",
    reads="system.modules",
    protects="Without nvidia-peermem or nvme-rdma data is silently copied through host memory.",
    hint="modprobe NAME and dmesg; add a file in /etc/modules-load.d for the next boot.",
)
def test_modules(host: Host, arch: Architecture) -> None:
    states = module_states(host)
    expect_all(
        f"{name}: expected loaded, actual {states.get(name.replace('-', '_'), 'not loaded')}"
        for name in arch.system.modules
        if states.get(name.replace("-", "_")) not in ("Live", "built in")
    )


@check(
    "os.modules_forbidden",
    reads="system.modules_forbidden",
    protects="A module that claims the device first blocks the right driver.",
    hint="A file in /etc/modprobe.d with `blacklist NAME` and `install NAME /bin/false`; update-initramfs -u; reboot.",
)
def test_modules_forbidden(host: Host, arch: Architecture) -> None:
    states = module_states(host)
    expect_all(
        f"{name}: expected not loaded, actual {states[name.replace('-', '_')]}"
        for name in arch.system.modules_forbidden
        if name.replace("-", "_") in states
    )


@check(
    "os.dkms",
    reads="system.dkms",
    protects="A DKMS driver not built for the running kernel is missing after the reboot into it.",
    hint="dkms autoinstall -k $(uname -r); install the kernel headers if missing; the log is in /var/lib/dkms.",
)
def test_dkms(host: Host, arch: Architecture) -> None:
    announce(host, RELEASE, DKMS)
    running = parse_release(read(host, RELEASE))
    known = parse_dkms_status(answered(host, DKMS, "dkms").lines)
    problems = []
    for name in arch.system.dkms:
        of_name = [entry for entry in known if entry.name == name]
        if not any(entry.kernel == running and entry.description == "installed" for entry in of_name):
            listed = (
                ", ".join(f"{entry.description} for {entry.kernel or 'no kernel'}" for entry in of_name) or "unknown"
            )
            problems.append(f"{name}: expected installed for {running}, actual {listed}")
    expect_all(problems)


@check(
    "os.secure_boot",
    reads="system.secure_boot",
    protects="With Secure Boot the kernel rejects drivers built on the node unless their key is enrolled.",
    hint="mokutil --sb-state; firmware setup: Secure Boot; or sign the modules and enrol the key at the console.",
)
def test_secure_boot(host: Host, arch: Architecture) -> None:
    words = {True: "on", False: "off"}
    expect(words[parse_secure_boot(read(host, SECURE_BOOT))], words[bool(arch.system.secure_boot)], "Secure Boot")


@check(
    "os.kernel_log",
    reads="system.kernel_log",
    protects="Hardware and driver errors in the kernel's log usually return and kill a job.",
    hint="dmesg -T, or journalctl -k: read the lines around them; the messages stay until the next boot.",
)
def test_kernel_log(host: Host, arch: Architecture) -> None:
    events = events_in(kernel_messages(host, EVENT_LOG), arch.system.kernel_log)
    expect_all(
        f"{name} ({EVENTS[name].means}): expected none, actual {quoted(messages)}" for name, messages in events.items()
    )


@check(
    "os.kernel_complaints",
    reads="system.kernel_log",
    when=always,
    required=False,
    protects="An error that no known fault explains is often the first sign of one.",
    hint="dmesg -T, or journalctl -k: read the lines around them, and look the driver's message up.",
)
def test_kernel_complaints(host: Host, arch: Architecture) -> None:
    """Errors of the kernel that are neither an event of `os.kernel_log` nor known to be harmless.

    Events that the architecture does not list are complaints, too. Events that a slow machine has as well are
    complaints only if the architecture lists no events at all.
    """
    judged = {*arch.system.kernel_log, *OF_SLOWNESS} if arch.system.kernel_log else set()
    if complaints := complaints_in(kernel_messages(host, EVENT_LOG), judged):
        raise AssertionError(f"expected no error beside known and harmless ones, actual {quoted(complaints)}")


@check(
    "os.clock_source",
    reads="system.clock_source",
    protects="With a slow clock source each timestamp is a system call; frameworks take a million of them a second.",
    hint="dmesg for 'Marking clocksource'; the kernel abandons an unstable tsc; clocksource= on the command line.",
)
def test_clock_source(host: Host, arch: Architecture) -> None:
    expect(parse_clock_source(read(host, CLOCK_SOURCE)), arch.system.clock_source, "clock source")


@check(
    "os.mitigations",
    reads="system.mitigations",
    protects="Mitigations differ in speed by tens of percent, and their absence lets jobs read each other's memory.",
    hint="grep . /sys/devices/system/cpu/vulnerabilities/*; mitigations= on the kernel's command line; microcode.",
)
def test_mitigations(host: Host, arch: Architecture) -> None:
    if arch.system.mitigations == "off":
        settings = [argument for argument in arguments(host) if argument.startswith("mitigations=")]
        if settings[-1:] != ["mitigations=off"]:  # the last one counts
            actual = settings[-1] if settings else "not set"
            raise AssertionError(f"expected mitigations=off on the kernel's command line, actual {actual}")
        return
    vulnerabilities = parse_vulnerabilities(read(host, VULNERABILITIES))
    expect_all(
        f"{name}: expected a mitigation, actual {state}"
        for name, state in vulnerabilities.items()
        if is_vulnerable(state)
    )
    if missing := sorted(ALWAYS_LISTED - vulnerabilities.keys()):
        raise Unmeasured(f"the kernel lists no state of {', '.join(missing)}")
    # A guest cannot see the mitigations of its host.
    if unknown := [name for name, state in vulnerabilities.items() if is_unknown(state)]:
        raise Unmeasured(f"the kernel cannot tell the state of {', '.join(unknown)}")


@check(
    "os.hugepages",
    reads="system.hugepages",
    protects="Huge pages not reserved at boot cannot be allocated later from fragmented memory.",
    hint="hugepagesz= and hugepages= on the kernel's command line, or vm.nr_hugepages early at boot.",
)
def test_hugepages(host: Host, arch: Architecture) -> None:
    reserved = parse_hugepages(read(host, HUGEPAGES))
    expect_all(
        f"huge pages of {size} KiB: expected {count}, actual {reserved.get(size, 'no such size')}"
        for size, count in (arch.system.hugepages or {}).items()
        if reserved.get(size) != count
    )
