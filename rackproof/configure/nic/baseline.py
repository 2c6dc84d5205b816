"""Baseline of link counters, which the kernel cannot set to zero: their values when acceptance began."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rackproof.parse.link_counters import BASELINE_FILE


def script(ports: Sequence[str]) -> str:
    """Clear the counters that the adapters can clear, and keep the values of the others."""
    names = " ".join(shlex.quote(port) for port in ports)
    return "\n".join(
        (
            "set -eu",
            f"mkdir -p {BASELINE_FILE.rpartition('/')[0]}",
            "if command -v mlxlink >/dev/null; then",
            f"  for p in {names}; do",
            '    s=$(cd -P "/sys/class/net/$p/device" && pwd)',
            '    timeout 60 mlxlink -d "${s##*/}" --pc >/dev/null'
            ' || { echo "$p: mlxlink could not clear the counters" >&2; exit 1; }',
            "  done",
            "fi",
            "{ cat /proc/sys/kernel/random/boot_id",
            f'  for p in {names}; do read -r n <"/sys/class/net/$p/carrier_down_count"; echo "$p $n"; done',
            "  for c in /sys/class/infiniband/*/ports/*/counters/link_downed; do",
            '    [ -r "$c" ] || continue',
            '    read -r n <"$c"; p=${c%/counters/*}; d=${p%/ports/*}; echo "${d##*/}/${p##*/} $n"',
            f"  done; }} >{BASELINE_FILE}.new",
            f"mv -f {BASELINE_FILE}.new {BASELINE_FILE}",
        )
    )
