"""Exact versions in one transaction, held, with every way it can fail named in one line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rackproof.configure.package_manager import ON_MIRROR, wait_for_lock
from rackproof.configure.packages import APT_OPTIONS
from rackproof.configure.versions.state import PackageState, is_held, is_installed
from rackproof.core.versions import LockedPackage
from rackproof.errors import Refused

FIRST: Final = "nvidia-driver-pinning"
"""Packages that must be there before the others are looked at: they pin the branch of what those depend on."""

BOOT_KERNEL: Final = 10
"""Which part of ``free_mib`` is wanted below /boot for a kernel."""
BOOT: Final = 40
"""And for anything else."""


@dataclass(frozen=True, slots=True)
class Options:
    """How packages are installed; see ``VersionInputs``."""

    family: str
    allow_downgrade: bool = False
    allow_removal: bool = False
    lock_wait_s: int = 300
    free_mib: int = 0
    proxy: str | None = None


class NoRoom(Refused):
    """There is not enough free space; nothing was changed."""


@dataclass(frozen=True, slots=True)
class InstallPlan:
    """What has to be installed; empty when everything is there."""

    packages: tuple[LockedPackage, ...] = ()
    script: str = ""

    def __bool__(self) -> bool:
        return bool(self.packages)


def plan_install(packages: Sequence[LockedPackage], state: PackageState, options: Options) -> InstallPlan:
    """One transaction with everything that is not there at its version.

    Raises NoRoom, one line, where it would not fit.
    """
    missing = tuple(each for each in packages if not is_installed(each, state, options.family))
    if not missing and not state.broken:
        return InstallPlan()
    if not missing:
        missing = tuple(packages)  # mending is a transaction too, and has to be proven
    # Without a kernel there is an initial file system to be written again at most, and RHEL's /boot has 1 GiB.
    boot = BOOT_KERNEL if any(each.component == "kernel" for each in missing) else BOOT
    for where, free in state.free_mib.items():
        needed = options.free_mib // boot if where == "/boot" else options.free_mib
        if free < needed:
            raise NoRoom(
                f"{where}: {free} MiB free, {needed} wanted before packages are installed; make room"
                " (apt-get clean, dnf clean all, old kernels), or lower versions.free_mib"
            )
    first = [each for each in missing if each.name.startswith(FIRST)]
    rest = [each for each in missing if each not in first]
    steps = [step for step in (first, rest) if step]
    # Of a hold only those that are changed are let go, and they are held again whatever happens.
    held = [each.name for each in missing if holds_some_version(each, state, options.family)]
    write = _apt if options.family == "debian" else _dnf
    return InstallPlan(missing, write(steps, held, options))


def holds_some_version(package: LockedPackage, state: PackageState, family: str) -> bool:
    """Whether a package is held, at whatever version."""
    if family == "debian":
        return is_held(package, state, family)
    # What follows the name is a version and a release: libnccl is not held by libnccl-devel-0:2.28.3-1.
    return any(re.fullmatch(rf"{re.escape(package.name)}-[^-]+-[^-]+", entry) for entry in state.held)


def _quoted(names: Iterable[str]) -> str:
    return " ".join(shlex.quote(name) for name in names)


def _proxy(proxy: str | None) -> tuple[str, ...]:
    if proxy is None:
        return ()
    value = shlex.quote(proxy)
    return (f"export http_proxy={value} https_proxy={value}",)


_SAY: Final = 'say() { printf "%s\\n" "$*" | tr "\\n" " " >&2; echo >&2; exit 1; }'
_ROOM: Final = (
    'room() { case "$1" in *"No space left"*|*"enough free space"*|*"more space"*)'
    ' say "the disk is full: $(df -Pm /usr /var /boot | awk \'NR > 1 { printf "%s %s MiB free, ", $6, $4 }\')'
    'make room and run again" ;; esac; }'
)


def _apt(steps: Sequence[Sequence[LockedPackage]], held: Sequence[str], options: Options) -> str:
    everything = [each for step in steps for each in step]
    allow = " --allow-downgrades" if options.allow_downgrade else ""
    lines = [
        "set -eu",
        "export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 NEEDRESTART_MODE=l SYSTEMD_OFFLINE=1",
        *_proxy(options.proxy),
        _SAY,
        _ROOM,
        *wait_for_lock("debian", options.lock_wait_s),
        "broken() { dpkg-query -W -f='${db:Status-Status} ${Package}\\n'"
        " | sed -nE '/^(installed|config-files|not-installed) /!s/^[^ ]* //p'; }",
        '[ -z "$(broken)" ] || dpkg --configure -a --force-confdef --force-confold >&2 || true',
        'left=$(broken); [ -z "$left" ] || apt-get -q -y -f ' + APT_OPTIONS + " install --no-remove >&2 || true",
        'left=$(broken); [ -z "$left" ] || say "half-configured and not to be mended: $left;'
        ' dpkg --configure -a shows why"',
        # What is installed already needs no repository.
        "absent() {",
        "  have=$({ dpkg-query -W -f='${db:Status-Status} ${Package}=${Version}\\n' 2>/dev/null"
        " | sed -n 's/^installed //p'; apt-cache madison -- $(for s; do echo \"${s%%=*}\"; done) 2>/dev/null"
        " | awk -F'|' '{ gsub(/ /, \"\"); print $1 \"=\" $2 }'; })",
        '  for s; do printf "%s\\n" "$have" | grep -qxF -- "$s" || printf "%s " "$s"; done; }',
    ]
    for number, step in enumerate(steps):
        specs = _quoted(f"{each.name}={each.version}" for each in step)
        lines += [
            f"set -- {specs}",
            'if [ -n "$(absent "$@")" ]; then',
            "  updated=yes; out=$(apt-get -q -o APT::Update::Error-Mode=any update 2>&1) || updated=no",
            '  room "$out"',
            '  case "$out" in *NO_PUBKEY*|*BADSIG*|*EXPKEYSIG*|*REVKEYSIG*|*"is not signed"*)',
            '    say "a repository is not signed with the key of the version set:'
            " $(printf '%s\\n' \"$out\" | grep -E 'NO_PUBKEY|BADSIG|EXPKEYSIG|REVKEYSIG|not signed' | head -n 1);"
            ' lock the new key after comparing its fingerprint with the vendor\'s" ;; esac',
            '  left=$(absent "$@"); [ -z "$left" ] || {',
            '    why=; [ $updated = yes ] || why=" (apt-get update: '
            "$(printf '%s\\n' \"$out\" | grep -E '^[EW]:' | tail -n 1))\"",
            f'    say "in none of the repositories: $left$why; {ON_MIRROR}, or lock versions that it has"; }}',
            "fi",
            f"apt_get() {{ apt-get -q -y {APT_OPTIONS} --no-install-recommends \"$@\"; }}",
            'plan=$(apt_get -s --allow-downgrades --allow-change-held-packages install -- "$@" 2>&1) ||'
            " say \"apt cannot install $*: $(printf '%s\\n' \"$plan\""
            " | grep -E '^E:|Depends:|Conflicts:|Breaks:' | head -n 4)\"",
        ]  # fmt: skip
        if not options.allow_removal:
            lines.append(
                "gone=$(printf '%s\\n' \"$plan\" | sed -n 's/^Remv \\([^ ]*\\).*/\\1/p'); [ -z \"$gone\" ] ||"
                ' say "installing $* would remove $gone; remove them first, or set versions.allow_removal"'
            )
        if not options.allow_downgrade:
            lines.append(
                "older=; for s; do v=$(dpkg-query -W -f='${db:Status-Status} ${Version}' -- \"${s%%=*}\" 2>/dev/null)"
                ' || continue; case "$v" in "installed "*) dpkg --compare-versions "${v#* }" gt "${s#*=}" &&'
                ' older="$older$s (installed: ${v#* }) " || : ;; esac; done;'
                ' [ -z "$older" ] || say "newer than locked: ${older}; set versions.allow_downgrade, or lock what is'
                ' installed"'
            )
        if number == 0 and held:
            lines += [
                f"trap 'apt-mark hold -- {_quoted(held)} >/dev/null' EXIT",
                f"apt-mark unhold -- {_quoted(held)} >/dev/null",
            ]
        lines += [
            f'out=$(apt_get{allow} install -- "$@" 2>&1) || {{ printf "%s\\n" "$out" >&2; room "$out";'
            " say \"apt could not install $*: $(printf '%s\\n' \"$out\" | grep -E '^E:' | tail -n 2);"
            ' the next run mends what is half-configured"; }',
        ]
    lines += ["unset SYSTEMD_OFFLINE", "systemctl daemon-reload"]
    expected = _quoted(f"{each.name}={each.version}" for each in everything)
    lines += [
        f"wrong=; for s in {expected}; do v=$(dpkg-query -W -f='${{db:Status-Status}} ${{Package}}=${{Version}}\\n'"
        ' -- "${s%%=*}" 2>/dev/null || echo none); [ "$(printf "%s\\n" "$v" | sort -u)" = "installed $s" ] ||'
        ' wrong="$wrong$s (actual: $v) "; done',
        f'[ -z "$wrong" ] || say "asked for and not there afterwards: $wrong"  # {len(everything)} packages',
    ]
    return "\n".join(lines)


def _dnf(steps: Sequence[Sequence[LockedPackage]], held: Sequence[str], options: Options) -> str:
    everything = [each for step in steps for each in step]
    lines = [
        "set -eu",
        "export LC_ALL=C.UTF-8 SYSTEMD_OFFLINE=1",
        *_proxy(options.proxy),
        _SAY,
        _ROOM,
        *wait_for_lock("rhel", options.lock_wait_s),
    ]
    if held:
        entries = _quoted(held)
        lines += [
            f"before=$(dnf -q versionlock list | grep -E '^({'|'.join(map(_pattern, held))})-[0-9]' || :)",
            "trap 'for e in $before; do dnf -q versionlock add --raw \"$e\" >/dev/null; done' EXIT",
            f"dnf -q versionlock delete -- {entries} >/dev/null",
        ]
    for step in steps:
        lines += [
            f"set -- {_quoted(_nevra(each) for each in step)}",
            # --assumeno ends with 1 after showing the transaction, and with 0 when there is nothing to do.
            "plan=$(dnf --setopt=install_weak_deps=False --assumeno install -- \"$@\" 2>&1) || case \"$plan\" in"
            ' *"Operation aborted"*) ;; *)',
            '  plan=$(dnf -q clean expire-cache; dnf --setopt=install_weak_deps=False --assumeno install -- "$@" 2>&1)'
            ' || case "$plan" in *"Operation aborted"*) ;;',
            '    *"Unable to find a match"*) say "in none of the repositories: '
            "$(printf '%s\\n' \"$plan\" | sed -n 's/.*Unable to find a match: //p');"
            f' {ON_MIRROR}, or lock versions that it has" ;;',
            '    *) room "$plan"; say "dnf cannot install $*: '
            "$(printf '%s\\n' \"$plan\" | grep -E 'Error|Problem|nothing provides|GPG|Public key|Failed' | head -n 4)"
            '" ;; esac ;; esac',
        ]  # fmt: skip
        if not options.allow_removal:
            lines.append(_dnf_section("Removing", "would be removed; remove them first, or set versions.allow_removal"))
        if not options.allow_downgrade:
            lines.append(
                _dnf_section("Downgrading", "are newer than locked; set versions.allow_downgrade, or lock them")
            )
        lines += [
            'out=$(dnf -q -y --setopt=install_weak_deps=False install -- "$@" 2>&1) || { printf "%s\\n" "$out" >&2;'
            ' room "$out"; case "$out" in *"Public key"*|*"GPG check FAILED"*|*"not correct for this package"*)'
            ' say "a package is not signed with the key of the version set; lock the new key after comparing its'
            " fingerprint with the vendor's: $(printf '%s\\n' \"$out\" | grep -E 'Public key|GPG' | head -n 1)\""
            " ;; esac;"
            ' say "dnf could not install $*: $(printf \'%s\\n\' "$out" | tail -n 2)"; }',
        ]
    lines += ["unset SYSTEMD_OFFLINE", "systemctl daemon-reload", "wrong="]
    for each in everything:
        form = "%{EPOCHNUM}:%{VERSION}-%{RELEASE}" if ":" in each.version else "%{VERSION}-%{RELEASE}"
        lines.append(
            f"rpm -q --qf '{form}\\n' -- {shlex.quote(each.name)} | grep -qxF -- {shlex.quote(each.version)}"
            f' || wrong="$wrong"{shlex.quote(_nevra(each) + " ")}'
        )
    lines.append('[ -z "$wrong" ] || say "asked for and not there afterwards: $wrong"')
    return "\n".join(lines)


def _nevra(package: LockedPackage) -> str:
    """As dnf takes it: the epoch stands between name and version."""
    return f"{package.name}-{package.version}"


def _pattern(name: str) -> str:
    return "".join(f"[{each}]" if each in ".+" else each for each in name)


def _dnf_section(title: str, what: str) -> str:
    """Refuse when dnf's transaction has this section; its entries are indented by one blank."""
    return (
        f"found=$(printf '%s\\n' \"$plan\" | awk '/^{title}/ {{ on = 1; next }} /^[^ ]/ || /^$/ {{ on = 0 }}"
        ' on && /^ [^ ]/ { print $1 }\'); [ -z "$found" ] ||'
        f' say "$found {what}"'
    )
