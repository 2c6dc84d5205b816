"""Scripts for a real shell on this machine, with stand-ins for programs that it lacks."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

_DASH = shutil.which("dash") or "dash"
"""Found by this machine's PATH; a script may have another."""


def executable(path: Path, body: str = ":") -> None:
    """Write an executable shell script, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def sh(
    script: str,
    *arguments: str,
    programs: Path | None = None,
    stdin: str = "",
    cwd: Path | str | None = None,
    check: bool = False,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a script. ``programs`` come first on PATH; with them or an environment it gets no other variables."""
    env = {"PATH": f"{programs}:/usr/bin:/bin" if programs else "/usr/bin:/bin"} | environment
    return subprocess.run(
        [_DASH, "-c", script, *arguments], input=stdin, cwd=cwd, env=env if programs or environment else None,
        capture_output=True, text=True, check=check, timeout=300,
    )  # fmt: skip


def is_shell(script: str) -> bool:
    """Whether a shell can read it; nothing runs."""
    return subprocess.run([_DASH, "-n", "-c", script], check=False).returncode == 0
