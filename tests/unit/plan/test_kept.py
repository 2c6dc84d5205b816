"""Whatever a plan writes, holds or enables is kept for a rollback by the same operation, or is named here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.unit.plan.golden import PLANS, ROOT, racks

OUTSIDE: Mapping[str, str] = {
    # what is written: why a rollback leaves it
    "$messages": "messages of a step, in memory",
    "$3": "a download below /var/cache/rackproof, named by its content",
    "hold of $e": "a version of a package, whose lock is kept by the package's name",
}
OURS = re.compile(r"/(etc|usr|boot|root|home|lib)/")
"""Elsewhere are stamps, logs, caches, and what a reboot takes away."""
BESIDE = (".new", ".rackproof-new", ".part")
"""Half of a file, moved into its place by the next command."""
WRITES = (
    re.compile(r"\bmv (?:-\w+ )+(?:-- )?\S+ (\S+)"),
    re.compile(r"(?<![<&\d-])>>? ?([/$][^\s()<>]+)"),
    re.compile(r"\binstall -D (?:-\w+ \w+ )*\S+ (\S+)"),
    re.compile(r"\b(?:sed -i|tee)\b.* ([/$]\S+)$", re.MULTILINE),
    re.compile(r"\bcp (?:-\w+ )*\S+ (/\S+)"),
    re.compile(r"\brm -f (?:-- )?(/\S+)"),
)
KEPT = re.compile(r"^rp_(file|keys|hold|unit|kernel|grubby)\b ?(.*)$", re.MULTILINE)
HOLDS = re.compile(r"\b(?:apt-mark (?:un)?hold|versionlock (?:add|delete))((?: (?!>)[^\s;|&]+)+)")
UNITS = re.compile(r"\bsystemctl (?:enable|disable|mask|unmask)((?: (?!>)[^\s;|&]+)+)")
_VALUES = re.compile(r"(?:^|[\s;({])(?:(\w+)=(\S*)|for (\w+) in ([^;\n]*))")


def operations(golden: str) -> Iterator[tuple[str, str]]:
    """Name and commands of every operation of a golden plan."""
    for part in golden.split("\n== ")[1:]:
        name, *lines = part.splitlines()
        yield name, "\n".join(line[2:] for line in lines if line.startswith("$ "))


def unkept(script: str) -> set[str]:
    """Files that a script changes and does not keep first."""
    text = re.sub(r"""["'\\]""", "", script)
    kept: dict[str, set[str]] = {}
    for kind, words in KEPT.findall(text):
        kept.setdefault(kind, set()).add(words.split()[1 if kind == "hold" else 0] if words else "")
    # Names in a script; of one that only the node knows, what the journal calls it.
    files = kept.get("file", set()) | ({"$1/.ssh/authorized_keys"} if "keys" in kept else set())
    paths = {path for written in _written(text) for path in _resolved(written, text)}
    wrong = {path for path in paths - files if OURS.match(path) or path.startswith("$")}
    held = _words(HOLDS, text)
    wrong |= {f"hold of {name}" for name in held - kept.get("hold", set())}
    wrong |= {f"unit {name}" for name in _words(UNITS, text) - kept.get("unit", set())}
    wrong |= {"default kernel"} if "grubby --set-default" in text and "kernel" not in kept else set()
    wrong |= {"kernel arguments"} if "grubby --update-kernel" in text and "grubby" not in kept else set()
    return wrong - set(OUTSIDE)


def _written(text: str) -> Iterator[str]:
    for pattern in WRITES:
        for path in pattern.findall(text):
            path = path.rstrip(";")
            if not path.endswith(BESIDE):
                yield path


def _words(pattern: re.Pattern[str], text: str) -> set[str]:
    arguments = [word for words in pattern.findall(text) for word in words.split() if not word.startswith("-")]
    return {name for word in arguments for name in _resolved(word, text)}


def _resolved(word: str, text: str, depth: int = 2) -> tuple[str, ...]:
    """A variable's values, as far as the script says them."""
    match = re.match(r"\$\{?([a-z]\w*)\}?", word)
    if match is None or not depth:
        return (word,)
    pairs = [(one or other, value or listed) for one, value, other, listed in _VALUES.findall(text)]
    # The output of a command is not known here.
    values = [word for name, value in pairs if name == match[1] for word in value.partition("$(")[0].split()]
    words = [word.replace(match[0], value, 1) for value in values] or [word]
    return tuple(path for word in words for path in _resolved(word, text, depth - 1))


@pytest.mark.parametrize("rack", [path.name for path in racks()])
def test_what_a_plan_changes_is_kept_for_a_rollback(rack: str) -> None:
    golden = (ROOT / PLANS / rack / "golden" / "gpu-01.txt").read_text(encoding="utf-8")
    unkept_paths = {name: sorted(wrong) for name, script in operations(golden) if (wrong := unkept(script))}
    assert unkept_paths == {}


@pytest.mark.parametrize(
    ("script", "wrong"),
    [
        ("mv -fT -- /etc/.a.new /etc/a", {"/etc/a"}),
        ("rp_file /etc/a later -\nmv -fT -- /etc/.a.new /etc/a", set()),
        ("rp_file /etc/b later -\necho x >/etc/a", {"/etc/a"}),
        ("sh -eu -c 'f=/etc/a\nmv -f $f.new $f'", {"/etc/a"}),
        ('for f in /etc/a.x /etc/a.y; do mv -f $f.new "$f"; done', {"/etc/a.x", "/etc/a.y"}),
        ("mv -f $g.new $g", {"$g"}),
        ("install -D -m 644 /var/cache/x /etc/keys/x", {"/etc/keys/x"}),
        ("sed -i s/a/b/ /etc/a", {"/etc/a"}),
        ("rm -f -- /etc/a", {"/etc/a"}),
        ("echo x >/run/a 2>/dev/null; mv -f /etc/a /var/lib/a", set()),
        ("apt-mark hold -- a b >/dev/null", {"hold of a", "hold of b"}),
        ("rp_hold rhel a\nfor p in a; do dnf -q versionlock delete -- \"$p\" >/dev/null; done", set()),
        ("systemctl mask --no-reload -- a.timer", {"unit a.timer"}),
        ("grubby --set-default /boot/vmlinuz-1 >/dev/null", {"default kernel"}),
    ],
)  # fmt: skip
def test_what_is_not_kept_is_found(script: str, wrong: set[str]) -> None:
    assert unkept(script) == wrong


def test_golden_plans_are_read_as_they_are_written() -> None:
    folder: Path = ROOT / PLANS
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*/golden/gpu-01.txt"))]
    scripts = [script for text in texts for _, script in operations(text)]
    assert sum("rp_file" in script for script in scripts) > 50
