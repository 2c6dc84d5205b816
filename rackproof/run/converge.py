"""Run pyinfra's own command and report its real outcome.

pyinfra exits with 0 if ``--limit`` matches nothing, if an inventory is misspelt, and after Ctrl-C; its JSON is absent
if all nodes failed or a template could not be rendered. So the expected nodes come from the inventory, the output is
read line by line, and a node counts only if the output shows that it converged.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackproof import kit
from rackproof.core.evidence import DeployRecord, Kind
from rackproof.core.grouping import grouped
from rackproof.core.plan import REPORTS
from rackproof.core.rack import Rack, fold
from rackproof.core.reboot_mode import Mode
from rackproof.evidence.store import EvidenceStore
from rackproof.parse.text import ANSI
from rackproof.remote.command import not_finished
from rackproof.remote.redaction import know, redact, secrets_of
from rackproof.run.deploy_outcome import INTERRUPTED, Printed, continuing, outcome_of

DRY_TIMEOUT_S = 1800.0
"""Time limit of a plan, which only reads: a hanging node must not block it for hours."""
TIMEOUT_S = 21600.0
"""Limit for the whole run; every operation has its own limit. A first deploy with network stack, driver, CUDA and
firmware takes one to two hours over a slow mirror."""
REBOOT_TIMEOUT_S = 86400.0
"""Limit for a run with reboots: each batch waits for jobs and self-tests, with limits of their own."""
INTERRUPT_S = 2.0
"""Seconds from SIGINT to SIGKILL: pyinfra does not end by itself while a command runs on a node."""
PIPES_S = 1.0
"""Seconds to read the rest of a stopped pyinfra's outputs; a local command that goes on may keep them open."""


@dataclass(frozen=True, slots=True)
class Converged:
    """Outcome of one deploy, and the outputs that give it, without secrets."""

    record: DeployRecord
    printed: Printed

    @property
    def rebooted(self) -> tuple[str, ...]:
        """Nodes that rebooted."""
        return tuple(node.node for node in self.record.nodes if node.rebooted)

    @property
    def goes_on(self) -> str:
        """Operations that continue after an interrupted deploy, in one sentence; empty without any."""
        left = continuing(self.printed, [node.node for node in self.record.nodes])
        running = grouped((operation, name) for name, operation in left.items())
        texts = [f"{operation} on {fold(names)}" for operation, names in running.items()]
        return f"the next run waits for what goes on: {'; '.join(texts)}" if texts else ""

    def keep(self, store: EvidenceStore) -> None:
        """Record the deploy and its outputs. Raises EvidenceWriteError."""
        raw = tuple(map(store.output, self.printed.outputs))
        store.append(Kind.DEPLOY, self.record.model_copy(update={"raw": raw}))


def converge(
    rack: Rack,
    *,
    deploy: str = kit.CLUSTER,
    limit: Sequence[str] = (),
    data: Sequence[str] = (),
    dry: bool = False,
    diff: bool = False,
    on_line: Callable[[str], None] = lambda line: None,
    timeout_s: float | None = None,
) -> Converged:
    """Run the deploy. KeyboardInterrupt ends pyinfra and is reported as an outcome, not raised.

    ``timeout_s``: limit in seconds; None: ``DRY_TIMEOUT_S`` of a dry pass, otherwise ``TIMEOUT_S``.
    """
    know(secret for node in rack.nodes for secret in secrets_of(node.data))
    expected = [node.name for node in rack.select(limit)]
    data = (*data, *((f"reboot_mode={Mode.PLANNED.value}",) if dry else ()))
    path = kit.deploy_file(deploy)
    mode = ["--dry"] if dry else ["-y"]
    limits = [pyinfra_pattern(rack, name) for name in expected] if limit else []
    arguments = [a for name in limits for a in ("--limit", name)] + [a for pair in data for a in ("--data", pair)]
    command = [
        str(Path(sys.executable).with_name("pyinfra")),
        *mode,
        "--json",
        *(["--diff"] if diff else []),
        *arguments,
        rack.source,
        str(path),
    ]
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rackproof-") as folder:
        reports = Path(folder) / "reports.jsonl"
        status, out, err, stopped = _run(command, on_line, timeout_s or (DRY_TIMEOUT_S if dry else TIMEOUT_S), reports)
        reported = reports.read_bytes() if reports.is_file() else b""
    elapsed_s = round(time.monotonic() - began, 3)
    printed = Printed(rack.source, deploy, dry, status, stopped, elapsed_s, out, err, reported).without_secrets()
    return Converged(outcome_of(printed, expected), printed)


def pyinfra_pattern(rack: Rack, name: str) -> str:
    """A node's name as a pattern for pyinfra's ``--limit``, which prefers groups of that name and expands wildcards."""
    groups = {Path(rack.source).stem, *(group for node in rack.nodes for group in node.groups)}
    return f"[{name[0]}]{glob.escape(name[1:])}" if name in groups else glob.escape(name)


def _run(
    command: list[str], on_line: Callable[[str], None], timeout_s: float, reports: Path
) -> tuple[int, bytes, bytes, str | None]:
    """Exit status, stdout, stderr, and why the run was stopped; None if it ended by itself."""
    env = {**os.environ, "PYINFRA_PROGRESS": "off", "PYTHONUNBUFFERED": "1", REPORTS: str(reports)}
    # If this process is killed, pyinfra must end too, before the next run starts.
    end_with_parent = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
    process = subprocess.Popen(
        [*end_with_parent, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        start_new_session=True,
    )
    out, err = bytearray(), bytearray()
    stdout, stderr = process.stdout, process.stderr
    if stdout is None or stderr is None:
        raise RuntimeError("Popen returned no pipes")

    def read_stderr() -> None:
        tracebacks = _Tracebacks()
        for line in stderr:
            err.extend(line)
            for shown in tracebacks.left(redact(ANSI.sub("", line.decode(errors="replace")).rstrip())):
                on_line(shown)

    readers = [
        threading.Thread(target=lambda: out.extend(stdout.read()), daemon=True),
        threading.Thread(target=read_stderr, daemon=True),
    ]
    why = None
    try:
        for reader in readers:
            reader.start()
        process.wait(timeout_s)
    except KeyboardInterrupt:
        why = INTERRUPTED
    except subprocess.TimeoutExpired:
        why = not_finished(timeout_s)
    if why:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(INTERRUPT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    until = time.monotonic() + (PIPES_S if why else 10.0)
    for reader in readers:
        reader.join(max(0.0, until - time.monotonic()))
    stdout.close()
    stderr.close()
    return process.returncode, bytes(out), bytes(err), why


class _Tracebacks:
    """Leaves tracebacks of pyinfra and its libraries out of its lines, but for the last error; the evidence has all."""

    _BETWEEN = ("During handling of the above", "The above exception was")

    def __init__(self) -> None:
        self._inside = False
        self._error: str | None = None

    def left(self, line: str) -> list[str]:
        """Lines to show now."""
        if line.startswith("Traceback (most recent call last)"):
            self._inside, self._error = True, None
            return []
        if line.startswith("Exception (client): "):  # paramiko's log; the node's own line follows
            return []
        if self._inside:
            self._inside = line.startswith(" ") or not line
            self._error = None if self._inside else line
            return []
        if self._error is not None and (not line or line.startswith(self._BETWEEN)):
            return []
        before, self._error = self._error, None
        return [*([before] if before else []), line]
