"""Runs the kit's programs of nodes on this machine, with their folders in a temporary one."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from rackproof.bench.storage import program_runs
from rackproof.remote.command import CommandResult
from tests.unit import warm_python

BENCH = Path(__file__).parents[3] / "rackproof" / "bench" / "ingest"


def run(program: str, *words: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    return warm_python.run(
        [sys.executable, "-I", str(BENCH / program), *words], capture_output=True, timeout=240, check=False, **options
    )


def document(program: str, *words: str, **options: Any) -> dict[str, Any]:
    """What the program prints."""
    done = run(program, *words, **options)
    assert done.stdout, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    assert ("error" in answer) == (done.returncode != 0)
    return answer


def configs(command: str, program: str) -> list[dict[str, Any]]:
    """Configurations in a command."""
    return program_runs.configs_of(command, program)


def answer(node: str, command: str, mountpoint: str, folder: Path) -> CommandResult | None:
    """Carries out a command line of a program of nodes; None for another command."""
    program = next((name for name in ("dataset_node.py", "ingest_node.py") if f"/{name} " in command), None)
    if program is None:
        return None
    words = shlex.split(command[command.index(f"/{program} ") :].replace(mountpoint, str(folder)))[1:]
    words = [
        "1" if program == "dataset_node.py" and word == "0" and number == len(words) - 1 else word
        for number, word in enumerate(words)
    ]
    done = run(program, *words)
    return CommandResult(node, command, done.returncode, done.stdout, done.stderr, 0.1, 1)
