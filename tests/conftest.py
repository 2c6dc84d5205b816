"""The wheel, built and installed in an environment of its own, for tests/wheel and tests/lab."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 900


def uv(*arguments: str) -> None:
    program = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".tools/bin/uv")
    subprocess.run([program, *arguments, "-q"], cwd=ROOT, check=True, timeout=TIMEOUT_S)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv("build", "--wheel", "-o", str(folder))
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="session")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of an environment with the wheel and the locked versions of what it depends on."""
    folder = tmp_path_factory.mktemp("environment")
    uv("venv", str(folder / "venv"))
    uv("export", "--frozen", "--no-dev", "--no-emit-project", "-o", str(folder / "requirements.txt"))
    python = str(folder / "venv/bin/python")
    uv("pip", "install", "--python", python, "-r", str(folder / "requirements.txt"))
    uv("pip", "install", "--python", python, "--no-deps", str(wheel))
    return folder / "venv/bin"


class Empty:
    """An empty folder, and the installed programs in it."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self._programs = programs

    def start(
        self, program: str, *arguments: str, output: int = subprocess.DEVNULL, **env: str
    ) -> subprocess.Popen[str]:
        path = f"{self._programs}:/usr/sbin:/usr/bin:/sbin:/bin"
        return subprocess.Popen(
            [self._programs / program, *arguments],
            cwd=self.folder,
            env={"PATH": path, "HOME": str(self.folder), "LANG": "C.UTF-8", **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
        )

    def __call__(
        self, program: str, *arguments: str, timeout: float = TIMEOUT_S, **env: str
    ) -> subprocess.CompletedProcess[str]:
        with self.start(program, *arguments, output=subprocess.PIPE, **env) as process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture
def empty(programs: Path, tmp_path: Path) -> Empty:
    return Empty(tmp_path, programs)
