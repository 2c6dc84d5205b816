"""Errors that a user reads: one line each, the cause first, with the file, node or key and what to do.

Classes without a path are defined here, the others in the named module::

    RackproofError
    ├── InventoryError          the inventory is absent, raises, or contradicts itself
    │   ├── DeclarationError    inventory and architecture contradict each other, or leave something open
    │   └── SourceError         a source of an inventory is unreadable or malformed (inventories/records.py)
    ├── ArchitectureError       a reference architecture is unknown or malformed
    ├── VersionSetError         a version set is malformed, was edited after it was locked, or contradicts itself
    ├── SizingError             an input of the sizing model is unknown, malformed or impossible
    ├── RunError                a run folder is absent, damaged, or cannot be continued
    ├── DataSetError            a data set cannot be made, or is not what its index says
    ├── EvidenceWriteError      evidence cannot be written (disk full, permissions)
    ├── RemoteError             a command on a node failed to run
    │   ├── NodeUnreachable     no connection, or it was lost
    │   └── HostKeyRefused      the host key is unknown or has changed
    ├── Unmeasured              a node gave no answer to a check (remote/recording.py)
    ├── ParseError              the output of a tool cannot be parsed (parse/errors.py)
    │   ├── Mismatch            a tool measured something else than it was asked to (parse/errors.py)
    │   │   └── FromMemory      what it read or wrote was answered by a client's memory (parse/errors.py)
    │   ├── TooFewRequests      a run was too short for a percentile (bench/storage/knee_reader.py)
    │   └── Unreliable          figures of a tool contradict each other (parse/errors.py)
    ├── UnitError               a unit is unknown, or has another dimension (core/units.py)
    ├── TooManyJobsError        group testing has run as many jobs as it may (core/fault_jobs.py)
    ├── NoTopology              no reference graph, or no matrix of NVLinks (core/topology.py)
    ├── Refused                 an operation does not change a node; the other nodes go on
    │   ├── Unreadable          the node did not answer completely (configure/operation.py)
    │   ├── UnsupportedGpu      GPU, driver and operating system do not go together (core/gpu_generations.py)
    │   ├── FirmwareProblem     an adapter cannot have the declared firmware (configure/nic/firmware.py)
    │   │   └── SharedAdapter   two ports of one adapter declare different firmware (configure/nic/firmware.py)
    │   ├── PortProblem         no NIC, or several, for a port (configure/network.py)
    │   └── NotRebooted         a node did not reboot, or not into what was asked (configure/reboot/carry.py)
    ├── SelfTestError           a catalogue of faults, or a written rack, is malformed
    └── LabError                the virtual rack cannot do what was asked

A command ends with exit status 3 (``EXIT_USAGE``) for each of them, unless it is caught on the way and becomes an
UNMEASURED verdict. Others belong to what catches them: pyinfra, click, pytest, the kit itself::

    DeployError
    └── RackStopped             problems of preflight stop the whole run (configure/preflight/problem.py)
    ClickException
    └── Interrupted             a signal ends a command (cli/interrupted.py)
    AssertionError
    └── Blames                  a check fails for another machine (validation/checks.py)
    OSError
    └── OutputError             a stream of the terminal cannot be written (cli/terminal.py)
    BaseException
    └── QuestionsNeeded         answers to a question are not recorded yet (remote/collect.py)

Programs that run on nodes alone (``bench/*/*_node.py``) end with ``Fault`` (bench/start_node.py), whose line is the
``error`` of their document; ``Damaged`` (bench/ingest/records_node.py) is a record that they cannot read.

``tests/unit/test_errors.py`` compares the trees with the classes of the package.
"""

from __future__ import annotations

from collections.abc import Sequence

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_INCOMPLETE = 2
EXIT_USAGE = 3
EXIT_CLOSED = 141
"""The reader of standard output has ended, as with ``head``: 128 and SIGPIPE."""


class RackproofError(Exception):
    """Base of every error that a user reads; ``str()`` is one line."""


class InventoryError(RackproofError):
    """The inventory cannot be used."""


class DeclarationError(InventoryError):
    """Inventory and architecture contradict each other, or together leave open what a deploy must know."""


class ArchitectureError(RackproofError):
    """A reference architecture cannot be used. ``mistakes`` has a line for each of its mistakes."""

    def __init__(self, message: str, mistakes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.mistakes = tuple(mistakes) or (message,)


class VersionSetError(RackproofError):
    """A version set cannot be used."""


class SizingError(RackproofError):
    """An input of the sizing model is unknown, malformed or impossible."""


class RunError(RackproofError):
    """A run folder cannot be read, judged or continued."""


class DataSetError(RackproofError):
    """A data set cannot be made or used: no space, no mount, changed since it was indexed."""


class EvidenceWriteError(RackproofError):
    """Evidence cannot be written. The run stops; evidence written before stays readable."""


class RemoteError(RackproofError):
    """A command on a node failed to run. ``node`` is its inventory name."""

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"{node}: {reason}")
        self.node = node
        self.reason = reason


class NodeUnreachable(RemoteError):
    """The connection was refused, timed out, failed to authenticate, or was lost."""


class HostKeyRefused(RemoteError):
    """The node's host key is unknown or has changed."""


class LabError(RackproofError):
    """The virtual rack cannot do what was asked."""


class SelfTestError(RackproofError):
    """A catalogue of faults or a written rack cannot be used."""


class Refused(RackproofError):
    """An operation does not change a node: it could not be read, or the change would harm it."""
