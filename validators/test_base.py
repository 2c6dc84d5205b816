"""The operating system of every node, as the kernel and the daemons report it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from testinfra.host import Host

from rackproof.configure.packages import declared_packages
from rackproof.core.architecture import Architecture
from rackproof.core.clocks import COMMAND, compare
from rackproof.core.evidence import CheckOutcome
from rackproof.core.failure import NOT_FOUND, failure
from rackproof.core.rack import Node, Rack
from rackproof.core.updaters import ALL_UPDATERS
from rackproof.core.wording import some
from rackproof.parse import ParseError
from rackproof.parse.chrony import Source, Tracking, parse_chrony_sources, parse_chrony_tracking
from rackproof.parse.clocks import parse_clocks
from rackproof.parse.cpu import GOVERNORS, parse_governors
from rackproof.parse.kernel import KERNELS, parse_kernels, parse_sysctl, release_order
from rackproof.parse.limits import LOGIN_MEMLOCK, parse_login_memlock
from rackproof.parse.packages import parse_apt_config, parse_package_list
from rackproof.parse.sysfs import parse_choice
from rackproof.parse.systemctl import parse_systemctl_show, parse_unit_list
from rackproof.parse.text import whole_lines
from rackproof.validation import Unmeasured, always, announce, check, expect, expect_all, read

PACKAGES = "dpkg-query -W -f='${db:Status-Status} ${Package}\\n'"
RPM_PACKAGES = "rpm -qa --qf 'installed %{NAME}\\n'"
LAST_STRATUM = 15
"""Too high for a time source: its clients would have 16, which means not synchronised (RFC 5905)."""
FEWEST_ANSWERS = 3
"""Minimum of answered polls among the last eight; the burst at the start of chronyd gives four."""
STATES = {
    "+": "is combined, not selected",
    "-": "is not combined",
    "?": "is unreachable or unusable",
    "x": "is a falseticker",
    "~": "is too variable",
}
TRACKING = "chronyc -n -c tracking"
SOURCES = "chronyc -n -c sources"
THP = "cat /sys/kernel/mm/transparent_hugepage/enabled"
MANAGER = "systemctl show --property=DefaultLimitMEMLOCK,NFailedUnits,SystemState"
_ENABLED = ("alias", "enabled", "enabled-runtime", "generated", "indirect", "linked", "linked-runtime", "transient")
_NOT_ENABLED = ("disabled", "masked", "masked-runtime", "not-found", "static")
"""States of systemctl(1), ``is-enabled``; a unit without a file has the state of its loading."""
APT = "if command -v apt-config >/dev/null; then apt-config dump | grep '^APT::'; else echo no apt; fi"


def frozen(arch: Architecture, node: Node, rack: Rack) -> bool:
    return arch.system.unattended_upgrades == "frozen"


def tracking(host: Host) -> Tracking:
    return parse_chrony_tracking(read(host, TRACKING))


def installed_packages(host: Host) -> tuple[Collection[str], str]:
    """Names of all installed packages, and the family of the node's distribution.

    Asks rpm if dpkg lists nothing: RHEL has no dpkg, or EPEL's without a package.
    """
    listed = host.run(PACKAGES)
    if listed.rc == 0 and listed.stdout.strip():
        return parse_package_list(whole_lines("dpkg-query", listed.stdout)), "debian"
    if listed.rc not in (0, 1, NOT_FOUND):
        raise Unmeasured(failure("dpkg-query", listed.rc, listed.stderr, listed.stdout))
    try:
        return parse_package_list(whole_lines("rpm", read(host, RPM_PACKAGES))), "rhel"
    except Unmeasured as error:
        if listed.rc == 1:
            why = failure("dpkg-query", listed.rc, listed.stderr, listed.stdout)
            raise Unmeasured(f"{why}; {error}") from None
        raise


@check(
    "base.packages",
    reads="system.packages",
    when=always,
    protects="A missing tool is noticed in the middle of an incident, when it is needed.",
    hint="Run `rackproof deploy` again: it reinstalls removed packages; read apt's or dnf's error if it fails.",
)
def test_packages(host: Host, arch: Architecture, node: Node) -> None:
    installed, family = installed_packages(host)
    missing = [name for name in declared_packages(arch, node, family) if name not in installed]
    if missing:
        raise AssertionError(f"expected to be installed, actual missing: {', '.join(missing)}")


@check(
    "base.time_synchronised",
    reads="system.time.server_role",
    when=always,
    protects="Logs of different nodes cannot be ordered; Ceph, Kerberos and TLS certificates fail once clocks drift.",
    hint="chronyc sources on the node; is the time server's port 123 open on the fabric?",
)
def test_time_synchronised(host: Host, arch: Architecture, node: Node, rack: Rack) -> None:
    role = arch.system.time.server_role
    server = next(iter(rack.group(role)), None) if role else None
    follows = server != node
    announce(host, TRACKING, *([SOURCES] if follows else []))
    clock = tracking(host)
    expect(clock.leap_status if clock.synchronised else "not synchronised", "Normal", "clock")
    if clock.stratum >= LAST_STRATUM:
        raise AssertionError(f"expected a stratum below {LAST_STRATUM}, actual {clock.stratum}")
    if not follows:
        return
    # Tracking stays synchronised for hours after the server stops; reach covers the last eight polls only.
    if server is None:
        chosen_ones = [source for source in parse_chrony_sources(read(host, SOURCES)) if source.state == "*"]
        if not chosen_ones:
            raise AssertionError(f"expected to follow a time server, actual {clock.reference or 'its own clock'}")
        _expect_answers(max(chosen_ones, key=lambda source: source.reach.bit_count()))
        return
    address = server.fabric_address() if node.fabric_address() else None
    if address is None:
        _follows_without_rail(server, [s for s in parse_chrony_sources(read(host, SOURCES)) if s.state == "*"])
        return
    source = next((s for s in parse_chrony_sources(read(host, SOURCES)) if s.name == address), None)
    if source is None:
        raise AssertionError(f"expected to follow {address}, actual {clock.reference or 'its own clock'}")
    if source.state != "*":
        raise AssertionError(f"expected to follow {address}, actual {address} {STATES[source.state]}, {_polls(source)}")
    _expect_answers(source)


def _polls(source: Source) -> str:
    return f"{source.reach.bit_count()} of the last eight polls answered"


def _expect_answers(source: Source) -> None:
    """Fail without any answer. Raises Unmeasured with too few answers to know the clock's error."""
    if source.reach == 0:
        raise AssertionError(f"expected answers of {source.name}, actual none to the last eight polls")
    if source.stratum >= LAST_STRATUM:
        raise AssertionError(f"expected a stratum of {source.name} below {LAST_STRATUM}, actual {source.stratum}")
    if source.reach.bit_count() < FEWEST_ANSWERS:
        raise Unmeasured(f"too few answers of {source.name}: {_polls(source)}")


def _follows_without_rail(server: Node, followed: Sequence[Source]) -> None:
    """Without fabric addresses of both nodes the server cannot be identified.

    Raises AssertionError without a reachable server, otherwise Unmeasured.
    """
    if not followed:
        raise AssertionError(f"expected to follow {server.name}, actual no time server")
    _expect_answers(followed[0])
    raise Unmeasured(
        f"it follows {followed[0].name}; without fabric_addresses of both nodes that cannot be matched to {server.name}"
    )


@check(
    "base.time_offset",
    reads="system.time.max_offset_ms",
    protects="Events of different nodes cannot be correlated; latencies between nodes come out negative.",
    hint="chronyc tracking: a large frequency or skew means a drifting oscillator or a guest on a busy host.",
)
def test_time_offset(host: Host, arch: Architecture) -> None:
    clock = tracking(host)
    offset_ms = abs(clock.system_offset_s) * 1000
    limit = arch.system.time.max_offset_ms
    if not offset_ms <= limit:
        raise AssertionError(f"expected an offset of at most {limit:g} ms, actual {offset_ms:.3f} ms")
    for what, seconds in (("last offset", clock.last_offset_s), ("RMS offset", clock.rms_offset_s)):
        if not abs(seconds) * 1000 <= limit:  # a past offset: the present estimate may be good, or stale
            raise Unmeasured(f"the clock has not settled: {what} of {abs(seconds) * 1000:.3f} ms, allowed {limit:g} ms")


@check(
    "base.time_compared",
    reads="system.time.max_offset_ms",
    protects="A clock that was set behind chrony's back is wrong although chrony calls it right.",
    hint="date on this node and on others; chronyc makestep sets it; look in its journal for what changed it.",
    timed=True,
)
def test_time_compared(host: Host, node: Node, arch: Architecture) -> None:
    clocks = parse_clocks(read(host, COMMAND))
    outcome, why = compare(clocks, node.name, arch.system.time.max_offset_ms / 1000)
    if outcome is CheckOutcome.FAILED:
        raise AssertionError(why)
    if outcome is not CheckOutcome.PASSED:
        raise Unmeasured(why)


@check(
    "base.memlock_login",
    reads="system.limits_memlock",
    protects="RDMA pins registered memory; with a small limit MPI and NCCL fail or fall back to TCP.",
    hint="Look for a later file in /etc/security/limits.d, and for pam_limits in /etc/pam.d/su and sshd.",
)
def test_memlock_login(host: Host, arch: Architecture) -> None:
    # A new login: the ssh connection of this check may predate the limits.
    actual = parse_login_memlock(read(host, LOGIN_MEMLOCK))
    expect(actual, str(arch.system.limits_memlock), "locked memory of a login (KiB)")


@check(
    "base.memlock_services",
    reads="system.limits_memlock",
    protects="Slurm's and other daemons' jobs inherit the limit of services, and RDMA fails in jobs only.",
    hint="systemctl show --property=DefaultLimitMEMLOCK; systemctl daemon-reexec, then restart the job daemon.",
)
def test_memlock_services(host: Host, arch: Architecture) -> None:
    memlock = arch.system.limits_memlock
    shown = parse_systemctl_show(read(host, MANAGER))
    expected = "infinity" if memlock == "unlimited" else str(int(memlock) * 1024)
    expect(_property(shown[0], "DefaultLimitMEMLOCK"), expected, "locked memory of services (bytes)")


def _property(shown: dict[str, str], key: str) -> str:
    if key not in shown:
        raise ParseError("systemctl", f"no property {key}")
    return shown[key]


@check(
    "base.sysctl",
    reads="system.sysctl.*",
    each=lambda arch, node, rack: arch.system.sysctl,
    protects="Default buffers, swapping and page migration each cost bandwidth without any error message.",
    hint="sysctl KEY on the node; look for another file in /etc/sysctl.d, or a service, that sets the key.",
)
def test_sysctl(host: Host, arch: Architecture, item: str) -> None:
    keys = " ".join(shlex.quote(key) for key in arch.system.sysctl)
    values = parse_sysctl(read(host, f"sysctl -e -- {keys}"))
    expect(values.get(item, "no such key in this kernel"), " ".join(arch.system.sysctl[item].split()))


@check(
    "base.transparent_hugepages",
    reads="system.transparent_hugepages",
    protects="Background compaction stalls one rank for milliseconds, and every other rank waits for it.",
    hint="cat /sys/kernel/mm/transparent_hugepage/enabled; tuned or a kernel argument may override it.",
)
def test_transparent_hugepages(host: Host, arch: Architecture) -> None:
    expect(parse_choice(read(host, THP)), arch.system.transparent_hugepages)


@check(
    "base.cpu_governor",
    reads="system.cpu_governor",
    when=lambda arch, node, rack: arch.system.cpu_governor is not None,
    protects="A core at low frequency delays small messages and kernel launches while it speeds up.",
    hint="cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; the firmware may control frequencies itself.",
)
def test_cpu_governor(host: Host, arch: Architecture) -> None:
    governors = parse_governors(read(host, GOVERNORS))
    wrong = [f"{cpu} {actual}" for cpu, actual in governors.items() if actual not in (None, arch.system.cpu_governor)]
    if wrong:
        raise AssertionError(f"expected {arch.system.cpu_governor} on every processor, actual {', '.join(wrong)}")
    silent = [cpu for cpu, actual in governors.items() if actual is None]
    if len(silent) == len(governors):
        raise Unmeasured("the kernel scales no processor's frequency (no cpufreq driver): firmware or host controls it")
    if silent:
        raise Unmeasured(f"the kernel names no governor of {some(silent, 3)}, of {len(governors)} processors")


@check(
    "base.updates_stopped",
    reads="system.unattended_upgrades",
    when=frozen,
    protects="An unattended kernel or library update invalidates the certificate.",
    hint="systemctl mask --now UNIT; `rackproof deploy` masks all of them.",
)
def test_updates_stopped(host: Host) -> None:
    command = f"systemctl show --property=Id,LoadState,ActiveState,UnitFileState -- {' '.join(ALL_UPDATERS)}"
    shown = parse_systemctl_show(read(host, command))
    if len(shown) != len(ALL_UPDATERS):
        raise ParseError("systemctl", f"answered for {len(shown)} of {len(ALL_UPDATERS)} units")
    problems = []
    for unit in shown:
        name, active = _property(unit, "Id"), _property(unit, "ActiveState")
        state = _property(unit, "UnitFileState") or _property(unit, "LoadState")
        if active in ("inactive", "failed") and state not in (*_ENABLED, *_NOT_ENABLED):
            raise Unmeasured(f"{name} is in an unknown state: {state}")
        if active not in ("inactive", "failed") or state in _ENABLED:
            problems.append(f"{name}: expected inactive and not enabled, actual {active} and {state}")
    expect_all(problems)


@check(
    "base.apt_periodic",
    reads="system.unattended_upgrades",
    when=frozen,
    protects="An unattended kernel or library update invalidates the certificate.",
    hint="apt-config dump APT::Periodic; another file in /etc/apt/apt.conf.d may sort after the deployed one.",
)
def test_apt_periodic(host: Host) -> None:
    text = read(host, APT)
    if text.strip() == "no apt":
        return
    expect(parse_apt_config(text).get("APT::Periodic::Enable", "unset"), "0", "APT::Periodic::Enable")


@check(
    "base.failed_units",
    reads="system",
    protects="A service that failed at boot often causes faults elsewhere.",
    hint="systemctl --failed, then journalctl -u UNIT; systemctl reset-failed once it is resolved.",
)
def test_failed_units(host: Host) -> None:
    shown = parse_systemctl_show(read(host, MANAGER))
    count = _property(shown[0], "NFailedUnits")
    if not count.isdigit():
        raise ParseError("systemctl", f"no number of failed units: {count}")
    if count != "0":
        names = parse_unit_list(read(host, "systemctl list-units --failed --plain --no-legend --no-pager"))
        raise AssertionError(f"expected no failed unit, actual {', '.join(names)}")
    state = _property(shown[0], "SystemState")
    if state in ("initializing", "starting"):
        raise Unmeasured(f"the system is {state}: units that are still to be started can fail")
    expect(state, "running", "systemd")


@check(
    "base.kernel",
    reads="system.packages",
    when=always,
    protects="Without its modules a kernel cannot mount; a newer installed kernel changes results after a reboot.",
    hint="Reboot the node into the newest installed kernel, then validate again.",
)
def test_kernel(host: Host) -> None:
    kernels = parse_kernels(read(host, KERNELS))
    running, installed = kernels.running, kernels.installed
    if running not in installed:
        raise AssertionError(
            f"expected modules of the running kernel {running}, actual {', '.join(installed) or 'none'}"
        )
    if release_order(kernels.newest) > release_order(running):
        raise AssertionError(f"running kernel, newest installed: expected {kernels.newest}, actual {running}")
    if kernels.reboot_required:
        raise AssertionError("expected no pending reboot, actual /run/reboot-required")
