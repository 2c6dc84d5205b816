"""The inventory's mapping ``reboot``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from rackproof.configure.settings import Inputs

OLD_KEY = "rebooting"
"""Former key of the mapping; ``reboot`` was then one of ``OLD_WORDS``."""
OLD_WORDS = {"allowed": True, "refused": False}


class RebootInputs(Inputs):
    KEY: ClassVar = "reboot"

    allowed: bool = False
    """Whether a deploy may reboot nodes (once) when its changes need it. Default: it only reports the reasons.
    ``rackproof deploy --reboot`` allows it for one run, with pyinfra's command ``--data reboot_mode=allowed``."""
    serial: int = Field(default=1, ge=1)
    """Nodes that reboot at the same time. Default 1, so that at most one node is lost. ``rackproof deploy --serial``
    overrides it. Must be the same for every node of the rack. Servers and Slurm's controller reboot first, always one
    at a time."""
    limit_s: float = Field(default=1800, gt=0)
    """Seconds from the order to reboot until the node answers with everything up. Default 30 minutes: a machine with
    2 TB of memory, eight GPUs and a dozen option ROMs takes 10 to 15 minutes for its self-test."""
    poll_s: float = Field(default=5, gt=0)
    """Seconds between attempts to reach the node."""
    drain_limit_s: float = Field(default=14400, ge=0)
    """Seconds that Slurm's jobs may take until the node is free. Default four hours. When they take longer, the node
    is resumed in Slurm and not rebooted."""
    max_failures: int = Field(default=0, ge=0)
    """Nodes that may fail to reboot before the remaining batches are skipped. Default 0: what broke one node would
    break the next. Must be the same for every node of the rack."""
    health_check: bool = True
    """Whether the architecture's ``slurm.health_check`` must succeed before a node is resumed in Slurm."""
    health_limit_s: float = Field(default=600, gt=0)
    """Seconds that the health check may take."""

    @classmethod
    def given(cls, data: Mapping[str, Any]) -> tuple[str, object]:
        """As ``Inputs.given``; older inventories have ``rebooting: {…}``, ``reboot: allowed``, or both."""
        value, old = data.get(cls.KEY), data.get(OLD_KEY)
        word = value if isinstance(value, str) else None
        if word is not None:
            if word not in OLD_WORDS:
                raise ValueError(f"{cls.KEY}: expected a mapping, allowed or refused, actual {word!r}")
            value = {"allowed": OLD_WORDS[word]}
        if old is None:
            return cls.KEY, value
        if value is None or not isinstance(old, Mapping):
            return OLD_KEY, old
        if word is None or "allowed" in old:
            raise ValueError(f"{OLD_KEY}: the former name of {cls.KEY}, which is given, too: move its entries there")
        return OLD_KEY, {**old, **value}
