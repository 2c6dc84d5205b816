"""Scripts with stand-ins for the programs that this machine lacks."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.unit.shell import executable, sh


def run_with(folder: Path, script: str, programs: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script; each program is the body of a shell script, which finds the folder in ``$F``."""
    for name, body in programs.items():
        executable(folder / "bin" / name, f"F={folder}\n{body}")
    return sh(script, programs=folder / "bin")


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    """Last line of a script that ended with an error."""
    assert done.returncode == 1, (done.returncode, done.stderr)
    return done.stderr.strip().splitlines()[-1]
