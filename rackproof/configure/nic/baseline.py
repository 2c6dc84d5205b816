"""Baseline of link counters, which the kernel cannot set to zero: their values when acceptance began."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

BASELINE: Final = "/var/lib/rackproof/nic/link-counters"
"""First line: the boot that it holds for. Then ``NAME NUMBER``: an interface and how often its link went down, or an
RDMA device's port (``mlx5_0/1``) and its ``link_downed``."""
_BOOT: Final = "/proc/sys/kernel/random/boot_id"


def command() -> str:
    return f"cat {_BOOT} {BASELINE} 2>/dev/null"


def is_of_this_boot(lines: Sequence[str]) -> bool:
    """Answer of ``command``. Raises ValueError without a boot id."""
    if not lines:
        raise ValueError("no boot id")
    return len(lines) > 1 and lines[1] == lines[0]


def script(ports: Sequence[str]) -> str:
    """Clear the counters that the adapters can clear, and keep the values of the others."""
    names = " ".join(shlex.quote(port) for port in ports)
    return "\n".join(
        (
            "set -eu",
            f"mkdir -p {BASELINE.rpartition('/')[0]}",
            "if command -v mlxlink >/dev/null; then",
            f"  for p in {names}; do",
            '    s=$(cd -P "/sys/class/net/$p/device" && pwd)',
            '    timeout 60 mlxlink -d "${s##*/}" --pc >/dev/null'
            ' || { echo "$p: mlxlink could not clear the counters" >&2; exit 1; }',
            "  done",
            "fi",
            f"{{ cat {_BOOT}",
            f'  for p in {names}; do read -r n <"/sys/class/net/$p/carrier_down_count"; echo "$p $n"; done',
            "  for c in /sys/class/infiniband/*/ports/*/counters/link_downed; do",
            '    [ -r "$c" ] || continue',
            '    read -r n <"$c"; p=${c%/counters/*}; d=${p%/ports/*}; echo "${d##*/}/${p##*/} $n"',
            f"  done; }} >{BASELINE}.new",
            f"mv -f {BASELINE}.new {BASELINE}",
        )
    )
