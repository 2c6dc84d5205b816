"""Whether a node's clock follows anything, as chrony says it: its own local clock is none to follow (chronyc(1))."""

from __future__ import annotations

import shlex
from typing import Final

WAIT_S: Final = 60
"""A first answer of a server takes seconds; a name that is looked up in vain is tried again after a few more."""
INTERVAL_S: Final = 5
SYNCHRONISED: Final = "synchronised"
ALONE: Final = (
    f"the clock follows no time source after {WAIT_S} s (chronyc sources): name the site's servers in time_upstreams,"
    " or the role that serves the time in system.time.server_role"
)


def state_command() -> str:
    return f"timeout -k 2 10 chronyc waitsync 1 >/dev/null 2>&1 && echo {SYNCHRONISED}; "


def wait_script() -> str:
    """Shell script that waits for a source, and fails without one."""
    wait = f"timeout -k 2 {WAIT_S + INTERVAL_S} chronyc waitsync {WAIT_S // INTERVAL_S} 0 0 {INTERVAL_S}"
    return f"{wait} >/dev/null 2>&1 || {{ echo {shlex.quote(ALONE)} >&2; exit 1; }}"
