"""What can go wrong, for a person to read.

::

    RackproofError                 one line: what, where, what to do next
    ├── InventoryError             the inventory file is absent, raises, or contradicts itself
    ├── ArchitectureError          a reference architecture is unknown or malformed
    ├── VersionSetError            a version set is malformed, edited after it was locked, or contradicts itself
    ├── SizingError                the sizing model was asked about something that cannot be
    ├── RunError                   a run folder is absent, damaged or cannot be continued
    ├── EvidenceWriteError         evidence could not be written (disk full, permissions)
    ├── RemoteError                a node could not be asked
    │   ├── NodeUnreachable
    │   └── HostKeyRefused
    ├── SelfTestError              a catalogue of faults, or a written rack, is malformed
    └── LabError                   the virtual rack could not do what was asked

Every one ends a command with exit status 3 (``EXIT_USAGE``) unless it is caught and turned into an
UNMEASURED verdict on the way.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_INCOMPLETE = 2
EXIT_USAGE = 3


class RackproofError(Exception):
    """Base of every error that a user is meant to read; ``str()`` is one line."""


class InventoryError(RackproofError):
    """The inventory cannot be used."""


class ArchitectureError(RackproofError):
    """A reference architecture cannot be used."""


class VersionSetError(RackproofError):
    """A version set cannot be used."""


class SizingError(RackproofError):
    """An input of the sizing model is unknown, malformed or impossible."""


class RunError(RackproofError):
    """A run folder cannot be read, judged or continued."""


class EvidenceWriteError(RackproofError):
    """Evidence could not be stored; the run stops, what was written before stays readable."""


class RemoteError(RackproofError):
    """A node could not be asked. ``node`` is its inventory name."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"{node}: {reason}")
        self.node = node
        self.reason = reason


class NodeUnreachable(RemoteError):
    """No connection: refused, timed out, authentication failed, or lost on the way."""


class HostKeyRefused(RemoteError):
    """The node's host key is unknown or has changed."""


class LabError(RackproofError):
    """The virtual rack could not do what was asked."""


class SelfTestError(RackproofError):
    """A catalogue of faults or a written rack cannot be used."""
