"""The last lines of ``rackproof certify``."""

from __future__ import annotations

from collections import Counter
from os import PathLike, fspath

from rich.box import SIMPLE
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rackproof.core.status import Outcome, Status
from rackproof.core.verdict import EVIDENCE
from rackproof.report.claims import measured_here
from rackproof.report.findings import Finding, findings
from rackproof.report.schema import Certificate
from rackproof.report.statements import broken_evidence, by_area, weakening_text
from rackproof.report.text import Encoder

FINDINGS = 10
"""Maximum number of findings on the terminal; the page has all."""

_STYLE = {
    Status.PASS: "green",
    Status.WARN: "yellow",
    Status.FAIL: "bold red",
    Status.INVALID: "magenta",
    Status.UNMEASURED: "cyan",
}
_OUTCOME_STYLE = {
    Outcome.CERTIFIED: "green",
    Outcome.PASSED: "green",
    Outcome.NOT_CERTIFIED: "red",
    Outcome.INCOMPLETE: "yellow",
}


def summary(certificate: Certificate, console: Console, page: str | PathLike[str] | None = None) -> None:
    """Print counts by area, the worst findings and the outcome. ``page``: path of the HTML certificate.

    All output is ``Text``, so that text from nodes is never parsed as markup.
    """
    encode = Encoder(console.encoding)
    if broken := broken_evidence(certificate.verdicts):
        console.print(Text(encode(broken), "bold magenta"), soft_wrap=True)
    else:
        _print_results(certificate, console, encode, page)
    if certificate.part is None:
        console.print(_verdict(certificate, encode))
    else:
        _print_part(certificate, console, encode)
    if page:
        console.print(Text.assemble(("page  ", "dim"), encode(fspath(page))), soft_wrap=True)


def _print_part(certificate: Certificate, console: Console, encode: Encoder) -> None:
    """Print the result of a run of one stage: a line without a box, because nothing is certified."""
    console.print(Text(encode(certificate.statement), f"bold {_OUTCOME_STYLE[certificate.outcome]}"), soft_wrap=True)
    arch = certificate.architecture
    console.print(Text(encode(f"against {arch.id} {arch.version} ({arch.title})"), "dim"), soft_wrap=True)
    for line in (*certificate.caveats, *map(weakening_text, arch.weakened[:FINDINGS]), *certificate.simulated):
        console.print(Text(encode(line), "yellow"), soft_wrap=True)


def _print_results(
    certificate: Certificate, console: Console, encode: Encoder, page: str | PathLike[str] | None
) -> None:
    console.print(_counts(certificate, encode))
    console.print()
    if certificate.claims:
        console.print(_claims(certificate, encode))
        console.print()
    shown = [f for f in findings(certificate.verdicts) if f.required or f.status is Status.FAIL]
    for finding in shown[:FINDINGS]:
        _print_finding(console, finding, encode)
    if len(shown) > FINDINGS:
        console.print(Text(f"and {len(shown) - FINDINGS} more{' in the page' if page else ''}\n"))


def _counts(certificate: Certificate, encode: Encoder) -> Table:
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    table.add_column("", overflow="fold")
    for status in Status:
        table.add_column(status.value, justify="right", no_wrap=True)
    for area, verdicts in by_area(certificate).items():
        counts = Counter(verdict.status for verdict in verdicts)
        cells = (Text(str(counts[s]), _STYLE[s]) if counts[s] else Text(encode("·"), "dim") for s in Status)
        table.add_row(Text(encode(area)), *cells)
    return table


def _claims(certificate: Certificate, encode: Encoder) -> Table:
    """Claim by claim: id, what it says, its figure, what was measured, verdict."""
    table = Table(box=SIMPLE, pad_edge=False, show_edge=False)
    for title in ("claim", certificate.scaled_from or "", "measured here", "verdict"):
        table.add_column(encode(title), overflow="fold")
    for claim in certificate.claims:
        says = Text(encode(claim.says))
        if claim.figure:
            says.append(f" {encode(claim.figure)}", "bold")
        shown = Text(encode(measured_here(claim)))
        verdict = Text(claim.status.value, _STYLE[claim.status]) if claim.status else Text("not judged", "dim")
        table.add_row(Text(claim.id), says, shown, verdict)
    return table


def _print_finding(console: Console, finding: Finding, encode: Encoder) -> None:
    head = Text.assemble((finding.status.value, _STYLE[finding.status]), " ", (encode(finding.title), "bold"))
    head.append(f" on {encode(finding.subjects)}")
    if not finding.required:
        head.append(" (advisory)", style="dim")
    console.print(head)
    lines = _messages(finding, encode)
    if finding.hint:
        lines.append(Text.assemble(("do: ", "dim"), encode(finding.hint)))
    for line in lines:
        console.print(Padding(line, (0, 0, 0, 5), expand=False))
    console.print()


def _messages(finding: Finding, encode: Encoder, limit: int = 3) -> list[Text]:
    lines = [
        Text(encode(f"{where}: {message}" if finding.says_where else message))
        for where, message in finding.messages[:limit]
        if message
    ]
    omitted = len(finding.messages) - limit
    return [*lines, Text(f"and {omitted} more", style="dim")] if omitted > 0 else lines


def _verdict(certificate: Certificate, encode: Encoder) -> Panel:
    style = _OUTCOME_STYLE[certificate.outcome]
    arch = certificate.architecture
    # if the evidence is not intact, the first line already has the statement
    hints = [v.hint for v in certificate.verdicts if v.id == EVIDENCE and broken_evidence([v])]
    text = Text.assemble(
        (encode(certificate.result), f"bold {style}"), "\n", encode(hints[0] if hints else certificate.statement)
    )
    origin = f", {arch.origin}" if arch.origin else ""
    against = f"{arch.id} {arch.version} ({arch.title}){origin}, profile {certificate.profile}"
    text.append(f"\n{encode(against)}", style="dim")
    for caveat in certificate.caveats:
        text.append(f"\n{encode(caveat)}", style="yellow")
    for weakening in arch.weakened[:FINDINGS]:
        text.append(f"\n{encode(weakening_text(weakening))}", style="yellow")
    if len(arch.weakened) > FINDINGS:
        text.append(f"\nand {len(arch.weakened) - FINDINGS} more weaker values", style="yellow")
    if arch.changed:
        changed = f"Bars changed by the site: {', '.join(bar.id for bar in arch.changed)}"
        text.append(f"\n{encode(changed)}", style="yellow")
    for line in certificate.sizing.lines if certificate.sizing else ():
        text.append(f"\n{encode(line)}", style="dim")
    for statement in certificate.simulated:
        text.append(f"\n{encode(statement)}", style="yellow")
    return Panel(text, border_style=style, padding=(0, 1))
