"""Outcome of a deploy, from what pyinfra printed and what the kit's operations reported. Does no I/O.

``rackproof judge`` reads the stored outputs again with the same function.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from rackproof.core.evidence import CONNECTION_LOST, REBOOT_REQUIRED, DeployRecord, NodeChanges, OperationChanges
from rackproof.core.plan import Change, NodeReport
from rackproof.core.rack import fold
from rackproof.parse.pyinfra_log import is_unconnected, node_line, operation_in, problem_in
from rackproof.parse.text import ANSI, excerpt
from rackproof.remote.command import NOT_FINISHED
from rackproof.remote.redaction import redact_bytes

INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Printed:
    """One run of pyinfra: its arguments, how it ended, and what it left."""

    inventory: str
    deploy: str
    dry: bool
    exit_status: int
    stopped: str | None
    """Why it was stopped; None if it ended by itself."""
    elapsed_s: float
    stdout: bytes = b""
    """pyinfra's JSON."""
    stderr: bytes = b""
    """pyinfra's lines."""
    reports: bytes = b""
    """One ``NodeReport`` per line."""

    @property
    def outputs(self) -> tuple[bytes, bytes, bytes]:
        """In the order of ``DeployRecord.raw``."""
        return self.stdout, self.stderr, self.reports

    def without_secrets(self) -> Printed:
        stdout, stderr, reports = map(redact_bytes, self.outputs)
        return replace(self, stdout=stdout, stderr=stderr, reports=reports)


def contradiction(record: DeployRecord, outputs: Sequence[bytes], expected: Sequence[str]) -> str | None:
    """The first difference between a recorded deploy and what its outputs give; None if they are equal."""
    if len(outputs) != 3:
        return f"it names {len(outputs)} outputs; a deploy has three: stdout, stderr and reports"
    reason = record.reason or ""
    stopped = reason if reason == INTERRUPTED or reason.startswith(NOT_FINISHED) else None
    printed = Printed(
        record.inventory, record.deploy, record.dry, record.exit_status, stopped, record.elapsed_s, *outputs
    )
    given = outcome_of(printed, expected)
    executed = any(report.executed for report in _reports(printed.reports))
    if record.dry and (executed or isinstance((_document(printed.stdout) or {}).get("results"), dict)):
        return "recorded as dry, its outputs show changes that were made"
    if (names := [node.node for node in record.nodes]) != list(expected):
        return f"recorded the nodes {', '.join(names)}, the run has {', '.join(expected)}"
    for one, other in zip(record.nodes, given.nodes, strict=True):
        for name in NodeChanges.model_fields:
            if (recorded := getattr(one, name)) != (read := getattr(other, name)):
                return f"{one.node}: {name}: recorded {_shown(recorded)}, its outputs give {_shown(read)}"
    if (record.ok, record.reason) != (given.ok, given.reason):
        return f"recorded {_shown(record.reason or 'success')}, its outputs give {_shown(given.reason or 'success')}"
    return None


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} ({excerpt(', '.join(map(str, value)), 60)})" if value else "none"
    return "none" if value is None else excerpt(str(value), 120)


def outcome_of(printed: Printed, expected: Sequence[str]) -> DeployRecord:
    """The outcome on the nodes ``expected``; without ``raw``. ``printed`` has no secrets."""
    transcript = _transcript(printed, expected)
    left = _continuing(printed, transcript)
    document = _document(printed.stdout)
    planned = {
        name: tuple(o["name"] for o in (document or {}).get("plan", []) if name in o.get("hosts_with_change", []))
        for name in transcript.nodes
    }
    nodes = []
    for name, log in transcript.nodes.items():
        reason = log.reason
        changed = planned[name] if printed.dry else tuple(log.changed)
        details = tuple(OperationChanges(operation=o, changes=c) for o, c in log.details.items() if o in changed)
        if not log.connected:
            reason = reason or "pyinfra never connected to it"
        elif reason is None and not printed.dry and not log.failed and (printed.stopped or document is None):
            reason = "the run ended before this node was finished"
            if name in left:
                reason = f"{left[name]} had begun and goes on there to its end"
            elif document is None and transcript.problems:
                reason = f"{reason}: {transcript.problems[-1]}"
        nodes.append(
            NodeChanges(
                node=name, reached=log.connected, changed=changed, details=details,
                unchanged=log.unchanged, failed=tuple(log.failed), rebooted=log.rebooted, reason=reason,
                reboot=None if log.failed else log.reboot,
            )
        )  # fmt: skip
    reason = _problem(nodes, document, printed, transcript)
    return DeployRecord(
        inventory=printed.inventory, deploy=printed.deploy, dry=printed.dry, exit_status=printed.exit_status,
        ok=reason is None, reason=reason, nodes=tuple(nodes), elapsed_s=printed.elapsed_s,
    )  # fmt: skip


def continuing(printed: Printed, expected: Sequence[str]) -> dict[str, str]:
    """By node: the operation that continues there after an interrupt; killing dpkg would be worse."""
    return _continuing(printed, _transcript(printed, expected))


def _continuing(printed: Printed, transcript: Transcript) -> dict[str, str]:
    if printed.dry or not printed.stopped:
        return {}
    logs = transcript.nodes.items()
    return {name: log.at for name, log in logs if log.at and log.connected and log.reason is None and not log.failed}


def _transcript(printed: Printed, expected: Sequence[str]) -> Transcript:
    transcript = Transcript(expected)
    for line in printed.stderr.decode(errors="replace").split("\n"):
        transcript.feed(line)
    for report in _reports(printed.reports):
        if report.lost or report.executed is not printed.dry:
            transcript.report(report)
    return transcript


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
    at: str | None = None
    """The operation that began and has not ended."""


class Transcript:
    """State of every node, from pyinfra's lines and the reports of the kit's operations."""

    def __init__(self, expected: Sequence[str]) -> None:
        self.nodes = {name: _NodeLog() for name in expected}
        self.operation = ""
        self.problems: list[str] = []

    def feed(self, raw: str) -> None:
        line = ANSI.sub("", raw).rstrip()
        if (operation := operation_in(line)) is not None:
            self.operation = operation
            for node in self.nodes.values():
                node.last_line = ""
                node.at = self.operation if node.connected else None
            return
        if told := node_line(line):
            log = self.nodes.get(told[0])
            if log is not None:
                self._node(log, told[1].strip())
        elif problem := problem_in(line):
            self.problems.append(problem)

    def _node(self, log: _NodeLog, text: str) -> None:
        if text.startswith(("Success", "No changes", "Skipped", "Error")):
            log.at = None
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
        elif is_unconnected(text):
            log.reason = log.reason or text
        else:
            log.last_line = text

    def report(self, report: NodeReport) -> None:
        """Add a report of the kit, after all lines; it replaces an earlier report of the same operation."""
        log = self.nodes.get(report.node)
        if log is None:
            return
        if report.lost and report.operation in log.failed:
            # Other errors of this node follow from it.
            log.reason = f"{report.operation}: {CONNECTION_LOST}" if report.operation else CONNECTION_LOST
        if report.pending_reboot:
            log.reboot = "; ".join(report.pending_reboot)
        log.rebooted = log.rebooted or report.rebooted
        if report.changes:
            log.details[report.operation] = report.changes


def _problem(
    nodes: Sequence[NodeChanges], document: dict[str, Any] | None, printed: Printed, transcript: Transcript
) -> str | None:
    """Why the deploy failed, in one line; None when it succeeded."""
    if printed.stopped:
        return printed.stopped
    absent = [n.node for n in nodes if not n.reached]
    failed = [n.node for n in nodes if n.failed]
    if absent:
        return f"{fold(absent)} not reached: {next(n.reason for n in nodes if n.node == absent[0])}"
    if failed:
        return f"{fold(failed)} failed: {next(n.reason for n in nodes if n.node == failed[0])}"
    if document is None:
        last = transcript.problems[-1] if transcript.problems else "it printed no result"
        return f"pyinfra ended early (exit status {printed.exit_status}): {last}"
    results = document.get("results")
    if not printed.dry:
        if not isinstance(results, dict):
            return "pyinfra applied nothing"
        if results.get("failed_hosts") or results.get("totals", {}).get("error"):
            return f"pyinfra reports failures on {fold(str(host) for host in results.get('failed_hosts') or [])}"
    if printed.exit_status != 0:
        return f"pyinfra ended with exit status {printed.exit_status}"
    waiting = [n for n in nodes if n.reboot]
    if waiting and not printed.dry:
        why = "; ".join(dict.fromkeys(n.reboot for n in waiting if n.reboot))
        return f"{fold(n.node for n in waiting)} {REBOOT_REQUIRED}{why}"
    return None


def _document(out: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(out)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _reports(reports: bytes) -> Iterator[NodeReport]:
    """Skips an incomplete last line of a killed pyinfra."""
    for line in reports.splitlines():
        with suppress(ValueError):
            yield NodeReport.model_validate_json(line)
