"""Limits, accounts, interrupt affinity, and changes pending until a reboot."""

from __future__ import annotations

from collections.abc import Iterable

from testinfra.host import Host

from rackproof.configure.node import cmdline
from rackproof.configure.reboot import reasons
from rackproof.core.architecture import Architecture, Limits, User
from rackproof.core.architecture.expectations import limited_services
from rackproof.core.rack import Node, Rack
from rackproof.parse import ParseError
from rackproof.parse.accounts import Account, accounts_command, parse_accounts, public_key
from rackproof.parse.interrupts import INTERRUPTS, parse_interrupts
from rackproof.parse.limits import (
    LOGIN_LIMITS,
    PROCESS_LIMITS,
    daemon_limits_command,
    parse_daemon_limits,
    parse_login_limits,
)
from rackproof.parse.systemctl import parse_systemctl_show
from rackproof.parse.text import ended_lines
from rackproof.validation import Unmeasured, check, expect_all, read

NAMES = {"nofile": "open files", "nproc": "processes", "stack": "stack", "memlock": "locked memory"}
UNITS = {"nofile": "", "nproc": "", "stack": " (KiB)", "memlock": " (KiB)"}
MANAGER = "systemctl show --property=" + ",".join(
    f"DefaultLimit{name.upper()}{kind}" for name in ("nofile", "nproc", "stack") for kind in ("", "Soft")
)
END = "end of answer"
NEXT_BOOT = f"{cmdline.state_command().rstrip('; ')}; echo {END}"
REBOOT = f"{reasons.state_command().rstrip('; ')}; echo {END}"
OF_THE_BOOT = ("BOOT_IMAGE", "root", "initrd", "vt.handoff")
"""Kernel arguments of the boot loader itself: they are not compared."""
SHOWN = 3
"""Number of interrupts to name in a message."""


def limits_of(arch: Architecture) -> Limits:
    """Limits of the architecture. Raises Unmeasured without any."""
    if arch.system.limits is None:
        raise Unmeasured("the architecture has no system.limits")
    return arch.system.limits


def numbers(limits: Limits) -> dict[str, str]:
    """Values as in limits.conf: numbers, and KiB for the stack."""
    values = {"nofile": limits.nofile, "nproc": limits.nproc, "stack": limits.stack}
    return {name: str(value) for name, value in values.items() if value is not None}


def limited(arch: Architecture, node: Node, rack: Rack) -> bool:
    return arch.system.limits is not None and bool(numbers(arch.system.limits))


@check(
    "os.limits_login",
    reads="system.limits",
    when=limited,
    protects="Frameworks open a file per sample and a socket per peer; at the limit a large job fails on one node.",
    hint="su -l root -c 'ulimit -a'; look for a later file in /etc/security/limits.d, and pam_limits in /etc/pam.d.",
)
def test_limits_login(host: Host, arch: Architecture) -> None:
    limits = parse_login_limits(read(host, LOGIN_LIMITS))
    expect_all(
        f"{NAMES[name]} of a login{UNITS[name]}, {kind}: expected {expected}, actual {value}"
        for name, expected in numbers(limits_of(arch)).items()
        for kind, value in zip(("soft", "hard"), limits[name], strict=True)
        if value != expected
    )


@check(
    "os.limits_services",
    reads="system.limits",
    when=limited,
    protects="Jobs inherit the limits of the daemon that starts them: they fail under the batch system only.",
    hint="systemctl show --property=DefaultLimitNOFILE; systemctl daemon-reexec, then restart the services.",
)
def test_limits_services(host: Host, arch: Architecture) -> None:
    shown = parse_systemctl_show(read(host, MANAGER))
    if len(shown) != 1:
        raise ParseError("systemctl", "no answer of the manager")
    problems = []
    for name, number in numbers(limits_of(arch)).items():
        expected = _in_bytes(name, number, "infinity")
        for key in (f"DefaultLimit{name.upper()}Soft", f"DefaultLimit{name.upper()}"):
            if not (shown[0].get(key) == "infinity" or shown[0].get(key, "").isdecimal()):
                raise ParseError("systemctl", f"no property {key}")
            if shown[0][key] != expected:
                problems.append(f"{key}: expected {expected}, actual {shown[0][key]}")
    expect_all(problems)


def _in_bytes(name: str, value: str, unlimited: str) -> str:
    return unlimited if value == "unlimited" else str(int(value) * PROCESS_LIMITS[name][1])


def daemons(arch: Architecture, node: Node, rack: Rack) -> Iterable[str]:
    return limited_services(arch, node.groups)


@check(
    "os.limits_daemon",
    reads="system.limits.services",
    each=daemons,
    protects="A limit in a unit file overrides the manager's: jobs and containers get less than logins.",
    hint="cat /proc/$(systemctl show -P MainPID UNIT)/limits; systemctl cat UNIT; restart it after a change.",
)
def test_limits_daemon(host: Host, arch: Architecture, node: Node, item: str) -> None:
    units = limited_services(arch, node.groups)
    daemon = parse_daemon_limits(read(host, daemon_limits_command(units)), units)[item]
    if not daemon.limits:
        raise Unmeasured(f"{item} is {daemon.state} and has no process; see service.active")
    limits = numbers(limits_of(arch)) | {"memlock": str(arch.system.limits_memlock)}
    problems = []
    for name, value in limits.items():
        expected = _in_bytes(name, value, "unlimited")
        for kind, actual in zip(("soft", "hard"), daemon.limits[name], strict=True):
            if actual != expected:
                problems.append(f"{NAMES[name]} of {item}, {kind}: expected {expected}, actual {actual}")
    expect_all(problems)


@check(
    "os.users",
    reads="system.users",
    protects="With another uid, files on shared storage belong to another user; without its key a user cannot log in.",
    hint="id NAME; ls -ld ~NAME/.ssh; visudo -c; sudo -l -U NAME; then run `rackproof deploy` again.",
)
def test_users(host: Host, arch: Architecture) -> None:
    users = arch.system.users
    names = tuple(user.name for user in users)
    accounts = parse_accounts(read(host, accounts_command(names)), names)
    problems = [problem for user in users for problem in _wrong_account(user, accounts.by_name[user.name])]
    if any(user.sudo for user in users) and accounts.sudoers_good is not True:
        actual = "refused by visudo -c" if accounts.sudoers_good is False else "no sudo"
        problems.append(f"sudoers: expected accepted, actual {actual}")
    expect_all(problems)


def _wrong_account(user: User, has: Account | None) -> Iterable[str]:
    if has is None:
        yield f"{user.name}: expected an account, actual none"
        return
    if user.uid is not None and has.uid != user.uid:
        yield f"{user.name}: uid: expected {user.uid}, actual {has.uid}"
    if missing := [group for group in user.groups if group not in has.groups]:
        yield f"{user.name}: expected in {', '.join(missing)}, actual in {', '.join(sorted(has.groups))}"
    if user.shell is not None and has.shell != user.shell:
        yield f"{user.name}: shell: expected {user.shell}, actual {has.shell}"
    # The comment at the end of a key is not compared.
    if absent := [key for key in user.ssh_keys if public_key(key) not in map(public_key, has.keys)]:
        yield f"{user.name}: keys: expected all {len(user.ssh_keys)}, actual {len(absent)} missing"
    elif user.ssh_keys and has.readable:
        yield f"{user.name}: keys: expected a file that sshd trusts, actual {has.readable}"
    if user.sudo is not None:
        if has.sudo != (f"{user.name} {user.sudo}",):
            yield f"{user.name}: sudo: expected {user.sudo}, actual {', '.join(has.sudo) or 'no rule'}"
        elif not has.may_sudo:
            yield f"{user.name}: sudo: expected in force, actual sudo -l lists no rule"


@check(
    "os.irq_affinity",
    reads="system.irq_affinity",
    protects="Every packet whose interrupt is handled on the other socket crosses sockets.",
    hint="systemctl restart rackproof-irq-affinity; stop irqbalance; cat /proc/irq/N/effective_affinity_list.",
)
def test_irq_affinity(host: Host) -> None:
    cards = [card for card in parse_interrupts(read(host, INTERRUPTS)) if card.by_irq]
    # The firmware reports no NUMA node for some cards; their interrupts cannot be judged.
    placed = [card for card in cards if card.numa_node >= 0]
    problems = []
    for card in placed:
        if far := card.far:
            named = ", ".join(map(str, far[:SHOWN])) + (" …" if len(far) > SHOWN else "")
            problems.append(
                f"{card.slot}: expected interrupts on NUMA node {card.numa_node}, actual {len(far)} of"
                f" {len(card.by_irq)} elsewhere ({named})"
            )
    expect_all(problems)
    if not placed:
        raise Unmeasured("the firmware reports no NUMA node for any NIC with interrupts")


@check(
    "os.next_boot",
    reads="system.cmdline_next_boot",
    protects="Pending kernel arguments change the node at its next, possibly unplanned, reboot.",
    hint="Compare /proc/cmdline with grubby --info=ALL, or /boot/grub/grub.cfg; reboot, or revert the change.",
)
def test_next_boot(host: Host) -> None:
    try:
        state = cmdline.parse_state(ended_lines("boot loader", read(host, NEXT_BOOT), END))
    except ValueError as error:
        raise ParseError("boot loader", str(error)) from None
    if not state.tool or not state.entries:
        raise Unmeasured("no supported boot loader: no grubby, no update-grub, or no entries")
    running = _own(state.running)
    problems: dict[str, None] = {}
    for entry in map(_own, state.entries):
        for word in sorted(running - entry):
            problems[f"next boot: expected {word} as now, actual without it"] = None
        for word in sorted(entry - running):
            problems[f"next boot: expected without {word} as now, actual with it"] = None
    expect_all(problems)


def _own(arguments: tuple[str, ...]) -> frozenset[str]:
    """Arguments without those that the boot loader adds."""
    return frozenset(word for word in arguments if "$" not in word and word.partition("=")[0] not in OF_THE_BOOT)


@check(
    "os.reboot_pending",
    reads="system.reboot_pending",
    protects="After a pending reboot the node differs from the one that was measured.",
    hint="rackproof deploy --reboot, or drain and reboot it; then validate again.",
)
def test_reboot_pending(host: Host, arch: Architecture) -> None:
    try:
        state = reasons.parse_state(ended_lines("reboot", read(host, REBOOT), END))
    except ValueError as error:
        raise ParseError("reboot", str(error)) from None
    expect_all(f"expected no pending reboot, actual {why}" for why in reasons.reasons(state, arch.system.kernel))
