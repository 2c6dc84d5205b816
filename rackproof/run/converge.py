"""Run pyinfra's own command and report its real outcome.

pyinfra's exit status is 0 when a ``--limit`` matches nothing, when an inventory is misspelt and after Ctrl-C; its
JSON is absent when every node failed or a template could not be rendered. So the expected nodes are taken from the
inventory, the output is read line by line, and a node counts only when the output shows that it converged.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rackproof import kit
from rackproof.core.evidence import CONNECTION_LOST, REBOOT_REQUIRED, DeployRecord, NodeChanges, OperationChanges
from rackproof.core.plan import REPORTS, Change, NodeReport
from rackproof.core.rack import Rack, fold
from rackproof.core.reboot_mode import Mode
from rackproof.remote.redaction import redact, redact_data

TIMEOUT_S = 21600.0
"""Limit for the whole run; every operation has its own limit. A first deploy with network stack, driver, CUDA and
firmware takes one to two hours over a slow mirror."""
REBOOT_TIMEOUT_S = 86400.0
"""Limit for a run with reboots: each batch waits for jobs and self-tests, with limits of their own."""
INTERRUPT_S = 5.0
INTERRUPTED = "interrupted"

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_OPERATION = re.compile(r"^--> Starting operation: (?P<name>.*?)(?: \([^()]*=.*\))?$")
_HOST = re.compile(r"^\s*\[(?P<node>[^\]]+)\]\s+(?P<text>.*)$")
_PROBLEM = re.compile(r"^(?:--> \w+ error in [^:]*|(?:[\w.]+\.)?(?P<kind>\w*(?:Error|Exception))): (?P<text>.+)$")
_CONNECT = re.compile(
    r"^(Could not connect|Authentication error|Could not resolve|SSH error|Host key|No host key)", re.I
)


@dataclass
class _NodeLog:
    connected: bool = False
    changed: list[str] = field(default_factory=list)
    unchanged: int = 0
    failed: list[str] = field(default_factory=list)
    reason: str | None = None
    last_line: str = ""
    """Last line that is not a status; it states the cause of a following error."""
    reboot: str | None = None
    rebooted: bool = False
    details: dict[str, tuple[Change, ...]] = field(default_factory=dict)
    """Changes by operation."""


class Transcript:
    """State of every node, from pyinfra's lines and the reports of the kit's operations. Does no I/O."""

    def __init__(self, expected: Sequence[str]) -> None:
        self.nodes = {name: _NodeLog() for name in expected}
        self.operation = ""
        self.problems: list[str] = []

    def feed(self, raw: str) -> None:
        line = redact(_ANSI.sub("", raw).rstrip())  # parts of it become evidence
        if match := _OPERATION.match(line):
            self.operation = match["name"].strip()
            for node in self.nodes.values():
                node.last_line = ""
            return
        if match := _HOST.match(line):
            log = self.nodes.get(match["node"])
            if log is not None:
                self._node(log, match["text"].strip())
            return
        if match := _PROBLEM.match(line.strip()):
            self.problems.append(f"{match['kind'] or 'error'}: {match['text']}")

    def _node(self, log: _NodeLog, text: str) -> None:
        if text.startswith("Connected"):
            log.connected = True
        elif text.startswith("Success"):
            log.connected = True
            log.changed.append(self.operation)
        elif text.startswith(("No changes", "Skipped")):
            log.connected = True
            log.unchanged += 1
        elif text.startswith("Error"):
            log.connected = True
            if self.operation not in log.failed:
                log.failed.append(self.operation)
            log.reason = log.reason or f"{self.operation}: {log.last_line or text}"
        elif CONNECTION_LOST in text:
            # Other errors of this node follow from it.
            log.reason = f"{self.operation}: {CONNECTION_LOST}"
        elif _CONNECT.match(text):
            log.reason = log.reason or text
        else:
            log.last_line = text

    def report(self, report: NodeReport) -> None:
        """Add the report of one of the kit's operations; it replaces an earlier report of the same operation."""
        log = self.nodes.get(report.node)
        if log is None:
            return
        if report.pending_reboot:
            log.reboot = "; ".join(report.pending_reboot)
        log.rebooted = log.rebooted or report.rebooted
        if report.changes:
            log.details[report.operation] = report.changes


@dataclass(frozen=True, slots=True)
class Converged:
    """Outcome of one deploy, and pyinfra's own output."""

    record: DeployRecord
    stdout: bytes
    stderr: bytes
    rebooted: tuple[str, ...] = ()
    """Nodes that rebooted."""


def converge(
    rack: Rack,
    *,
    deploy: str = kit.CLUSTER,
    limit: Sequence[str] = (),
    data: Sequence[str] = (),
    dry: bool = False,
    diff: bool = False,
    on_line: Callable[[str], None] = lambda line: None,
    timeout_s: float = TIMEOUT_S,
) -> Converged:
    """Run the deploy. KeyboardInterrupt ends pyinfra and is reported as an outcome, not raised."""
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
    transcript = Transcript(expected)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rackproof-") as folder:
        reports = Path(folder) / "reports.jsonl"
        status, out, err, interrupted = _run(command, transcript, on_line, timeout_s, reports)
        for report in _reports(reports):
            if report.executed is not dry:
                transcript.report(report)
    record = _record(rack, deploy, dry, status, out, transcript, interrupted, time.monotonic() - began)
    rebooted = tuple(name for name, log in transcript.nodes.items() if log.rebooted)
    return Converged(record, out, err, rebooted)


def pyinfra_pattern(rack: Rack, name: str) -> str:
    """A node's name as a pattern for pyinfra's ``--limit``, which prefers groups of that name and expands wildcards."""
    groups = {Path(rack.source).stem, *(group for node in rack.nodes for group in node.groups)}
    return f"[{name[0]}]{glob.escape(name[1:])}" if name in groups else glob.escape(name)


def _run(
    command: list[str], transcript: Transcript, on_line: Callable[[str], None], timeout_s: float, reports: Path
) -> tuple[int, bytes, bytes, str | None]:
    """Exit status, stdout, stderr, and why the run was ended early (None: it was not)."""
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
        for line in stderr:
            err.extend(line)
            text = line.decode(errors="replace")
            transcript.feed(text)
            on_line(redact(_ANSI.sub("", text).rstrip()))

    readers = [
        threading.Thread(target=lambda: out.extend(stdout.read()), daemon=True),
        threading.Thread(target=read_stderr, daemon=True),
    ]
    for reader in readers:
        reader.start()
    why = None
    try:
        process.wait(timeout_s)
    except KeyboardInterrupt:
        why = INTERRUPTED
    except subprocess.TimeoutExpired:
        why = f"not finished within {timeout_s:g} s"
    if why:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(INTERRUPT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for reader in readers:
        reader.join(5)
    stdout.close()
    stderr.close()
    return process.returncode, bytes(out), bytes(err), why


def _reports(path: Path) -> Iterator[NodeReport]:
    """Reports without secrets. Skips an incomplete last line, left by a killed pyinfra."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            yield NodeReport.model_validate(redact_data(json.loads(line)))


def _record(
    rack: Rack,
    deploy: str,
    dry: bool,
    status: int,
    out: bytes,
    transcript: Transcript,
    interrupted: str | None,
    elapsed: float,
) -> DeployRecord:
    document = _document(out)
    planned = {
        name: tuple(o["name"] for o in (document or {}).get("plan", []) if name in o.get("hosts_with_change", []))
        for name in transcript.nodes
    }
    nodes = []
    for name, log in transcript.nodes.items():
        reason = log.reason
        changed = planned[name] if dry else tuple(log.changed)
        details = tuple(OperationChanges(operation=o, changes=c) for o, c in log.details.items() if o in changed)
        if not log.connected:
            reason = reason or "pyinfra never connected to it"
        elif reason is None and not dry and not log.failed and (interrupted or document is None):
            reason = "the run ended before this node was finished"
            if document is None and transcript.problems:
                reason = f"{reason}: {transcript.problems[-1]}"
        nodes.append(
            NodeChanges(
                node=name, reached=log.connected, changed=changed, details=details,
                unchanged=log.unchanged, failed=tuple(log.failed), rebooted=log.rebooted, reason=reason,
                reboot=None if log.failed else log.reboot,
            )
        )  # fmt: skip
    reason = _verdict(nodes, document, status, transcript, interrupted, dry)
    return DeployRecord(
        inventory=rack.source, deploy=deploy, dry=dry, exit_status=status, ok=reason is None, reason=reason,
        nodes=tuple(nodes), elapsed_s=round(elapsed, 3),
    )  # fmt: skip


def _verdict(
    nodes: Sequence[NodeChanges],
    document: dict[str, Any] | None,
    status: int,
    transcript: Transcript,
    interrupted: str | None,
    dry: bool,
) -> str | None:
    """Why the deploy failed, in one line; None when it succeeded."""
    if interrupted:
        return interrupted
    absent = [n.node for n in nodes if not n.reached]
    failed = [n.node for n in nodes if n.failed]
    if absent:
        return f"{fold(absent)} not reached: {next(n.reason for n in nodes if n.node == absent[0])}"
    if failed:
        return f"{fold(failed)} failed: {next(n.reason for n in nodes if n.node == failed[0])}"
    if document is None:
        last = transcript.problems[-1] if transcript.problems else "it printed no result"
        return f"pyinfra ended early (exit status {status}): {last}"
    results = document.get("results")
    if not dry:
        if not isinstance(results, dict):
            return "pyinfra applied nothing"
        if results.get("failed_hosts") or results.get("totals", {}).get("error"):
            return f"pyinfra reports failures on {fold(str(host) for host in results.get('failed_hosts') or [])}"
    if status != 0:
        return f"pyinfra ended with exit status {status}"
    waiting = [n for n in nodes if n.reboot]
    if waiting and not dry:
        why = "; ".join(dict.fromkeys(n.reboot for n in waiting if n.reboot))
        return f"{fold(n.node for n in waiting)} {REBOOT_REQUIRED}{why}"
    return None


def _document(out: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(out)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
