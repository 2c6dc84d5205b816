"""Raw outputs on the page: one block per distinct output, with all commands that printed it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rackproof.core.grouping import grouped
from rackproof.core.texts import SHA256
from rackproof.core.wording import shortened
from rackproof.report.brevity import LISTED, by_need
from rackproof.report.certificate import EMPTY_SHA256
from rackproof.report.schema import Certificate, RawOutput
from rackproof.report.statements import fold_subjects
from rackproof.report.text import decoded

SHOWN_BYTES = 16 * 1024
"""Maximum bytes shown of one output; the file has the rest."""
PAGE_BYTES = 1024 * 1024
"""Maximum bytes shown of all outputs, so that the page of a large rack opens on a phone."""

TITLE_LENGTH = 120
"""Maximum length of a command in a link's title: a table may have thousands of links."""
COMMAND_LENGTH = 600
"""Maximum length of a command above its output; evidence.jsonl has the whole command."""


@dataclass(frozen=True, slots=True)
class Producer:
    """Nodes on which the same command had the same result."""

    nodes: str
    command: str
    which: str
    rc: int | None
    error: str | None
    elapsed_s: float
    """Maximum over the nodes."""

    @property
    def title(self) -> str:
        return shortened(self.command, TITLE_LENGTH)

    @property
    def shown(self) -> str:
        return shortened(self.command, COMMAND_LENGTH)


@dataclass(frozen=True, slots=True)
class Output:
    anchor: str
    sha256: str
    href: str | None
    """Relative link to the whole output; None for a name that is not a sha256, which might leave the folder."""
    producers: tuple[Producer, ...]
    size: int
    text: str | None
    cut: bool
    """Whether ``text`` is only the beginning."""
    note: str | None

    @property
    def group(self) -> str:
        return self.producers[0].nodes if self.producers else "without a command"


@dataclass(frozen=True, slots=True)
class Link:
    href: str
    name: str
    title: str


class OutputIndex:
    """All outputs of a certificate, and links to them."""

    def __init__(self, certificate: Certificate, raw: Mapping[str, bytes]) -> None:
        self._seen = grouped((entry.sha256, entry) for entry in certificate.evidence.raw)
        needed = by_need(certificate.verdicts, certificate.measurements, certificate.deploys)
        self._anchors = _anchors([*needed, *(sha for sha in self._seen if sha not in needed)])
        budget = PAGE_BYTES
        shown: dict[str, Output] = {}
        for sha in list(self._anchors)[:LISTED]:
            output = self._output(sha, raw, budget)
            budget -= min(output.size, SHOWN_BYTES) if output.text else 0
            shown[sha] = output
        self.outputs = tuple(sorted(shown.values(), key=_position))
        self._shown = frozenset(shown)
        self.omitted = len(self._anchors) - len(shown)

    def links(self, raw: Iterable[str]) -> tuple[Link, ...]:
        links = (self._link(sha) for sha in dict.fromkeys(raw) if sha in self._anchors)
        return tuple(link for link in links if link)

    def _link(self, sha: str) -> Link | None:
        anchor = self._anchors[sha]
        href = f"#{anchor}" if sha in self._shown else _file(sha)
        return Link(href, anchor.removeprefix("raw-"), self._title(sha)) if href else None

    def commands(self, raw: Iterable[str], limit: int = 3) -> tuple[Producer, ...]:
        """Commands that reproduce the outputs, at most ``limit``."""
        producers = (producer for sha in dict.fromkeys(raw) for producer in _producers(self._seen.get(sha, ())))
        return tuple({producer.command: producer for producer in producers}.values())[:limit]

    def by_node(self) -> tuple[tuple[str, tuple[Output, ...]], ...]:
        groups = grouped((output.group, output) for output in self.outputs)
        return tuple((group, tuple(outputs)) for group, outputs in groups.items())

    def _title(self, sha: str) -> str:
        entries = self._seen.get(sha)
        return f"{entries[0].node}: {shortened(entries[0].command, TITLE_LENGTH)}" if entries else sha

    def _output(self, sha: str, raw: Mapping[str, bytes], budget: int) -> Output:
        entries = self._seen.get(sha, [])
        data = raw.get(sha, b"" if sha == EMPTY_SHA256 else None)
        size = len(data) if data is not None else max((e.bytes for e in entries), default=0)
        text, cut, note = None, False, None
        if data is None:
            note = "The output's file was missing when the page was made."
        elif not data:
            note = "The command printed nothing."
        elif min(size, SHOWN_BYTES) > budget:
            note = "Left out to keep the page small."
        else:
            cut = size > SHOWN_BYTES
            text = decoded(data[:SHOWN_BYTES], complete=not cut)
        return Output(
            anchor=self._anchors[sha],
            sha256=sha,
            href=_file(sha),
            producers=_producers(entries),
            size=size,
            text=text,
            cut=cut,
            note=note,
        )


def _file(sha: str) -> str | None:
    return f"raw/{sha}" if re.fullmatch(SHA256, sha) else None


def _anchors(names: Iterable[str]) -> dict[str, str]:
    """``raw-`` and the first twelve digits of each name; the whole name if two share them."""
    short = {name: _token(name)[:12] for name in names}
    taken = Counter(short.values())
    return {name: f"raw-{cut if taken[cut] == 1 else _token(name)}" for name, cut in short.items()}


def _token(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z]", lambda m: f"_{ord(m[0]):x}_", name)


def _producers(entries: Iterable[RawOutput]) -> tuple[Producer, ...]:
    same = grouped(((e.command, e.which, e.rc, e.error), e) for e in entries)
    return tuple(
        Producer(
            nodes=fold_subjects(e.node for e in group),
            command=command,
            which=which,
            rc=rc,
            error=error,
            elapsed_s=max(e.elapsed_s for e in group),
        )
        for (command, which, rc, error), group in same.items()
    )


def _position(output: Output) -> tuple[bool, str, str, str]:
    first = output.producers[0] if output.producers else None
    return (first is None, first.nodes if first else "", first.command if first else "", output.sha256)
