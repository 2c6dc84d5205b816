"""Units that change packages, or lock the package manager, by themselves.

apt.systemd.daily(8) runs from the first two, and unattended-upgrades.service finishes its work at shutdown; Ubuntu
enables all three. dnf-automatic(8) has four timers, of which each can be enabled alone; dnf-makecache.timer holds dnf's
lock while it loads metadata.
"""

from typing import Final

UPDATERS: Final = {
    "debian": ("apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service"),
    "rhel": (
        "dnf-automatic.timer", "dnf-automatic-download.timer", "dnf-automatic-install.timer",
        "dnf-automatic-notifyonly.timer", "dnf-makecache.timer",
    ),
}  # fmt: skip
"""By family of distributions."""
ALL_UPDATERS: Final = tuple(unit for units in UPDATERS.values() for unit in units)
