"""Selection of checks and nodes: ``--limit``, ``--tags`` and ``-k``. Reports state a limited selection."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from _pytest.mark.expression import Expression

from rackproof.core.nearest import suggestion
from rackproof.errors import RunError
from rackproof.validation.checks import Check


@dataclass(frozen=True, slots=True)
class Selection:
    """Selected checks and nodes; default: everything."""

    limit: str = ""
    """As the user gave it: ``gpu-[01-16]``."""
    nodes: frozenset[str] | None = None
    """Nodes that ``limit`` selects; None: all."""
    tags: frozenset[str] = frozenset()
    """A check needs one of them; empty: every check."""
    expression: str = ""
    """pytest's ``-k``, on names of checks, functions, files and nodes."""

    @property
    def description(self) -> str:
        """``limited to gpu-[01-02], tags storage``; empty when nothing is left out."""
        parts = [
            *([self.limit] if self.limit else []),
            *([f"tags {', '.join(sorted(self.tags))}"] if self.tags else []),
            *([f"-k '{self.expression}'"] if self.expression else []),
        ]
        return f"limited to {', '.join(parts)}" if parts else ""

    def has_node(self, name: str) -> bool:
        return self.nodes is None or name in self.nodes

    def has_check(self, check: Check) -> bool:
        return not self.tags or bool(self.tags & check.tags)

    def has_name(self, *names: str) -> bool:
        """Whether ``-k`` matches these names: each word is searched in all names, ignoring case."""
        if not self.expression:
            return True
        low = [name.lower() for name in names]

        def matches(word: str, /, **_: object) -> bool:
            return any(word.lower() in name for name in low)

        return _compiled(self.expression).evaluate(matches)


EVERYTHING = Selection()


def tags_of(text: str) -> frozenset[str]:
    """``gpu,storage``."""
    return frozenset(word for word in (word.strip() for word in text.split(",")) if word)


def refuse_unknown(tags: Iterable[str], checks: Iterable[Check]) -> None:
    """Raises RunError for a tag that no check has."""
    known = sorted({tag for check in checks for tag in check.tags})
    for tag in sorted(tags):
        if tag not in known:
            raise RunError(f"--tags {tag}: no check has that tag; {suggestion(tag, known)}")


def refuse_malformed(expression: str) -> None:
    """Raises RunError for a malformed ``-k``."""
    if expression:
        _compiled(expression)


def _compiled(expression: str) -> Expression:
    try:
        return Expression.compile(expression)
    except SyntaxError as error:
        raise RunError(f"-k '{expression}': {error.msg}") from None
