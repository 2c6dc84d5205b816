"""Whether chrony follows a time source; the node's own local clock does not count (chronyc(1))."""

from __future__ import annotations

import shlex
from typing import Final

WAIT_S: Final = 60
"""The first answer of a server takes seconds; a failed name lookup is repeated a few seconds later."""
INTERVAL_S: Final = 5
SYNCHRONISED: Final = "synchronised"
ALONE: Final = (
    f"the clock follows no time source after {WAIT_S} s (chronyc sources): name the site's servers in time_upstreams,"
    " or the role of the time server in system.time.server_role"
)


def state_command() -> str:
    return f"timeout -k 2 10 chronyc waitsync 1 >/dev/null 2>&1 && echo {SYNCHRONISED}; "


def wait_script() -> str:
    """Shell script that waits for a time source and fails when there is none."""
    wait = f"timeout -k 2 {WAIT_S + INTERVAL_S} chronyc waitsync {WAIT_S // INTERVAL_S} 0 0 {INTERVAL_S}"
    return f"{wait} >/dev/null 2>&1 || {{ echo {shlex.quote(ALONE)} >&2; exit 1; }}"
