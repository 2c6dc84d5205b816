"""Malformed inputs of all verbs, from one table: words in every argument, and damage to every file that the kit reads.

The same inputs every time: ``random.Random`` with the name of the case as its seed.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rackproof.core.evidence import canonical

ROOT = Path(__file__).parents[2]
FORGED = "rackproof: CERTIFIED"

WORDS = (
    "", " ", "-", "--", "--help=x", ".", "..", "../../../etc/shadow", "/", "/dev/zero", "/dev/full", "/dev/tty", "fifo",
    "folder", "empty", "link", "latest", "nan", "inf", "1e999", "-1", "9" * 400, "0x10", "1_0", "²", "true", "null",
    f"a\n{FORGED}", f"\r{FORGED}", "\x1b]0;CERTIFIED\x07", "\x1b[2K\x1b[1A", "\x9b31m", "a\x7fb", "\u202eDEIFITREC",
    "\u2028x", "\udcff", "×", "\U0001f600" * 50, "x" * 5000, "a/" * 3000, "gpu[1-99999999]", "a[1-9999]b[1-9999]",
    "gpu[", "gpu]", "[]", "gpu[5-1]", "!", "!!", "a&&b", ",,,", "*" * 200, "?" * 200, "@", "@recording/nothing",
    "@local", "((((((", "a" * 100 + "!", "(a+)+$", "not or and", "not " * 500 + "x", "%s%n%d", "{n}", "{0.__class__}",
    "$(id)", "`id`", "'; id; '", "a b", "k=v=w", "=", "x:", ":5", "a:1e400", "a:-5%", "nodes=", "nodes=nan",
    "nodes=1e30", "nodes=-1", "port_rate=5parsec", "unit.count=²",
)  # fmt: skip
"""Arguments; ``fifo``, ``folder``, ``empty`` and ``link`` exist where the command runs."""

RECORDINGS = str(ROOT / "tests/data/recordings/virtual-rack")
SLOTS: dict[str, tuple[str, ...]] = {
    "command": ("{}",),
    "command-option": ("--{}",),
    "arch": ("arch", "{}"),
    "arch-show": ("arch", "show", "{}"),
    "arch-check": ("arch", "check", "{}"),
    "arch-claims": ("arch", "claims", "{}"),
    "arch-metrics": ("arch", "metrics", "{}"),
    "bench": ("bench", "{}"),
    "certify": ("certify", "{}"),
    "compare": ("compare", "{}", "{}"),
    "compare-threshold": ("compare", "a", "b", "--threshold", "{}"),
    "compare-output": ("compare", "latest", "latest", "--output", "{}"),
    "dataset": ("dataset", "make", "{}"),
    "deploy": ("deploy", "{}"),
    "deploy-serial": ("deploy", "rack.py", "--serial", "{}"),
    "diff": ("diff", "{}"),
    "diff-two": ("diff", "{}", "folder"),
    "diff-peers": ("diff", "--peers", "{}"),
    "inputs": ("inputs", "{}"),
    "judge": ("judge", "{}"),
    "judge-architecture": ("judge", "latest", "--architecture", "{}"),
    "judge-output": ("judge", "latest", "--output", "{}"),
    "lab-ssh": ("lab", "ssh", "{}"),
    "lab-console": ("lab", "console", "{}"),
    "lab-fault": ("lab", "fault", "{}", "on"),
    "mirror": ("mirror", "list", "{}"),
    "mirror-from": ("mirror", "list", "--from", "{}"),
    "overview": ("overview", "nothing.py", "{}"),
    "paths": ("paths", "{}"),
    "plan": ("plan", "nothing.py", "{}"),
    "preflight": ("preflight", "{}", "--data", "x"),
    "record": ("record", "all", "-o", "{}", "--inventory", "nothing.py"),
    "rollback": ("rollback", "{}"),
    "selftest-faults": ("selftest", "--faults", "{}"),
    "size": ("size", "{}"),
    "size-html": ("size", "hpe-apollo6500-weka", "-w", "resnet50", "--html", "{}"),
    "size-workload": ("size", "hpe-apollo6500-weka", "-w", "{}"),
    "size-set": ("size", "hpe-apollo6500-weka", "-w", "resnet50", "--set", "{}"),
    "validate": ("validate", "{}"),
    "validate-from": ("validate", "--from", "{}"),
    "validate-rack": ("validate", "--local", "--rack", "{}"),
    "validate-time": ("validate", "--local", "--time-limit", "{}"),
    "versions-check": ("versions", "check", "{}"),
    "versions-lock": ("versions", "lock", "{}"),
}
"""Where a word is put; none of these starts another process or contacts a node."""
SELECTIONS: dict[str, tuple[str, ...]] = {
    "limit": ("validate", "--from", RECORDINGS, "-k", "base.kernel", "--limit", "{}"),
    "tags": ("validate", "--from", RECORDINGS, "--limit", "gpu-01", "--tags", "{}"),
    "k": ("validate", "--from", RECORDINGS, "--limit", "gpu-01", "-k", "{}"),
    "junit": ("validate", "--from", RECORDINGS, "-k", "base.kernel", "--junit", "{}"),
    "architecture": ("validate", "--from", RECORDINGS, "--architecture", "{}"),
    "validators": ("validate", "--from", RECORDINGS, "--validators", "{}"),
}
"""They read recordings first, which takes a second each."""


def filled(slot: tuple[str, ...], word: str) -> list[str]:
    return [part.replace("{}", word) for part in slot]


def surroundings(folder: Path) -> None:
    """Files that the words name."""
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "empty").touch()
    (folder / "link").symlink_to("link")


Damage = Callable[[bytes, random.Random], bytes]


def _cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data) or 1)]


def _flip(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data) or 1)
    return data[:at] + bytes([byte ^ 1 << dice.randrange(8) for byte in data[at : at + 1]]) + data[at + 1 :]


def _lines(change: Callable[[list[bytes], int, random.Random], None]) -> Damage:
    def damage(data: bytes, dice: random.Random) -> bytes:
        lines = data.split(b"\n")
        change(lines, dice.randrange(max(1, len(lines) - 1)), dice)
        return b"\n".join(lines)

    return damage


def _put(word: bytes) -> Damage:
    def damage(data: bytes, dice: random.Random) -> bytes:
        at = dice.randrange(len(data) or 1)
        return data[:at] + word + data[at:]

    return damage


def _value(word: bytes) -> Damage:
    """Replace what follows a colon or a comma."""

    def damage(data: bytes, dice: random.Random) -> bytes:
        marks = [index for index, byte in enumerate(data) if byte in b":,="]
        at = dice.choice(marks) if marks else 0
        end = data.find(b"\n", at)
        return data[: at + 1] + b" " + word + data[end if end > 0 else len(data) :]

    return damage


def _swap(lines: list[bytes], at: int, dice: random.Random) -> None:
    other = dice.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]


DAMAGES: dict[str, Damage] = {
    "cut": _cut,
    "flip": _flip,
    "drop": _lines(lambda lines, at, dice: lines.__delitem__(at)),
    "twice": _lines(lambda lines, at, dice: lines.insert(at, lines[at])),
    "swap": _lines(_swap),
    "nothing": lambda data, dice: b"",
    "nul": _put(b"\0"),
    "latin": _put(b"\xff\xfe"),
    "escape": _put(b"\x1b]0;CERTIFIED\x07"),
    "forged": _put(f"\n{FORGED}\n".encode()),
    "surrogate": _put(rb"\ud800"),
    "random": lambda data, dice: dice.randbytes(2000),
    "utf-16": lambda data, dice: data.decode(errors="replace").encode("utf-16"),
    "deep": lambda data, dice: b"[" * 100_000,
    "deep-map": lambda data, dice: b'{"a":' * 50_000,
    "long-number": _value(b"9" * 5000),
    "huge": _value(b"1e400"),
    "negative": _value(b"-99999999999999999999"),
    "nan": _value(b".nan"),
    "list": _value(b"[1, [2]]"),
    "map": _value(b"{a: 1}"),
    "null": _value(b"null"),
    "text": _value(b'"\\u001b[2K\\nrackproof: CERTIFIED"'),
    "long-text": _value(b"x" * 5000),
    "yaml-object": _value(b"!!python/object/apply:os.system [id]"),
    "yaml-alias": _value(b"*nothing"),
    "yaml-bomb": lambda data, dice: b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (98 + k, 98 + k, b",".join([b"*%c" % (97 + k)] * 9)) for k in range(12)
    ),
    "quote": _put(b'"'),
    "brace": _put(b"{{ 7*7 }}"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Damaged:
    """A file with damage, and the command that reads it."""

    file: str
    damage: str
    seed: int

    @property
    def id(self) -> str:
        return f"{self.file}-{self.damage}-{self.seed}"

    def bytes(self, data: bytes) -> bytes:
        return DAMAGES[self.damage](data, random.Random(self.id))  # noqa: S311  (no secret)


FILES: dict[str, tuple[Path, str, tuple[str, ...]]] = {
    # source, its name in the folder of the command, the command
    "architecture": (ROOT / "architectures/nvidia-dgx-h100.yaml", "a.yaml", ("arch", "check", "a.yaml")),
    "sizing": (ROOT / "architectures/hpe-apollo6500-weka.yaml", "a.yaml", ("size", "./a.yaml", "-w", "resnet50")),
    "versions": (ROOT / "inventories/versions/debian.yaml", "v.yaml", ("versions", "check", "v.yaml")),
    "recording": (Path(RECORDINGS) / "gpu-01.json", "folder/gpu-01.json", ("diff", RECORDINGS, "folder")),
    "validated": (
        Path(RECORDINGS) / "gpu-01.json", "folder/gpu-01.json", ("validate", "--from", "folder", "--limit", "gpu-01"),
    ),
}  # fmt: skip


def damaged(seeds: int, files: tuple[str, ...] = tuple(FILES)) -> Iterator[Damaged]:
    for file in files:
        for damage in DAMAGES:
            yield from (Damaged(file, damage, seed) for seed in range(seeds))


def resealed(data: bytes, seed: int) -> bytes:
    """A recording whose outputs are damaged and whose hashes are right: what a node may answer."""
    dice = random.Random(f"resealed-{seed}")  # noqa: S311
    damage = list(DAMAGES.values())[seed % len(DAMAGES)]
    document = json.loads(data)
    for result in document["commands"]:
        text = "".join(result.get("stdout", ["x"])) if isinstance(result.get("stdout", []), list) else "x"
        spoilt = damage((text or "x").encode(), dice)[:100_000].decode(errors="replace")
        result |= {"stdout": [spoilt], "stdout_sha256": hashlib.sha256(spoilt.encode()).hexdigest(), "rc": 0}
        result.pop("error", None)
        if not spoilt:
            del result["stdout_sha256"]
    del document["sha256"]
    document["sha256"] = hashlib.sha256(canonical(document)).hexdigest()
    return json.dumps(document).encode()


RUN_FILES = ("evidence.jsonl", "raw")
Spoil = Callable[[Path], object]


def run_damages(seeds: int) -> Iterator[tuple[str, Spoil]]:
    """Damage to the folder of a finished run."""
    for name in DAMAGES:
        for seed in range(seeds):
            for part in RUN_FILES:
                yield f"{part}-{name}-{seed}", partial(_spoil_run, part, Damaged(part, name, seed))
    for name, replace in REPLACEMENTS.items():
        for part in (*RUN_FILES, "certificate.json"):
            yield f"{part}-{name}", partial(_replace, part, replace)


def _target(part: str, folder: Path, dice: random.Random) -> Path:
    return dice.choice(sorted((folder / "raw").iterdir())) if part == "raw" else folder / part


def _spoil_run(part: str, case: Damaged, folder: Path) -> None:
    path = _target(part, folder, random.Random(case.id))  # noqa: S311
    path.write_bytes(case.bytes(path.read_bytes()))


def _replace(part: str, replace: Spoil, folder: Path) -> None:
    path = _target(part, folder, random.Random(part))  # noqa: S311
    path.unlink()
    replace(path)


REPLACEMENTS: dict[str, Spoil] = {
    "gone": lambda path: None,
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "full": lambda path: path.symlink_to("/dev/full"),
    "loop": lambda path: path.symlink_to(path),
    "shadow": lambda path: path.symlink_to("/etc/shadow"),
    "sparse": lambda path: (path.touch(), os.truncate(path, 10**11)),
    "secret": lambda path: (path.write_text("x"), path.chmod(0)),
}


def copied(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    return Path(shutil.copytree(folder, to))
