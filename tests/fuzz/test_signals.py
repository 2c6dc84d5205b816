"""Each verb × SIGINT, SIGTERM, SIGHUP × importing, reading, connecting, starting, waiting, writing: what remains.

While it is starting, the node confirms no command, nor what the kit does on it after the signal.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fuzz import servers
from tests.fuzz.conftest import Finished

pytestmark = pytest.mark.few(1)

ROOT = Path(__file__).parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BUSY_S = 120
"""To the moment, and from the signal to the end: 10 s is the limit, the rest is a busy host."""
LIVE = {
    "validate": ("validate", "rack.py", "--quiet"),
    "record": ("record", "all", "-o", "recordings", "--inventory", "rack.py"),
    "bench": ("bench", "rack.py", "--quiet"),
    "certify": ("certify", "rack.py", "--quiet"),
    "deploy": ("deploy", "rack.py", "--quiet"),
    "dry": ("deploy", "rack.py", "--dry", "--quiet"),
    "rollback": ("rollback", "rack.py", "--quiet"),
    "plan": ("plan", "rack.py"),
    "preflight": ("preflight", "rack.py"),
    "versions": ("versions", "lock", "rack.py", "-o", "versions.lock.yaml"),
}
READING = {**LIVE, "mirror": ("mirror", "list", "rack.py")}
RECORDINGS = ROOT / "tests/data/recordings/virtual-rack"
WRITING = {
    "judge": ("judge", "run"),
    "validate": ("validate", "--from", str(RECORDINGS), "--junit", "junit.xml"),
    "size": ("size", "nvidia-dgx-h100", "-w", "unet3d", "--html", "plan.html"),
}
OFFLINE = {
    "arch": ("arch", "list"),
    "compare": ("compare", "run", "run"),
    "diff": ("diff", str(RECORDINGS), str(RECORDINGS)),
    "inputs": ("inputs",),
    "judge": WRITING["judge"],
    "lab": ("lab", "status"),
    "paths": ("paths",),
    "selftest": ("selftest", "--list"),
    "size": WRITING["size"],
}
PYINFRAS = ("deploy", "dry", "plan", "preflight", "rollback")
"""Their commands on nodes end with their own time limits: one of dpkg, ended in the middle, would be worse."""
MODULE = (sys.executable, "-m", "rackproof")
SLOW_WRITE = """
import pathlib, sys, time
def slow(self, target):
    pathlib.Path("ready").touch()
    time.sleep(300)
pathlib.Path.replace = slow
from rackproof.__main__ import main
sys.argv[0] = "rackproof"
main()
"""
SLOW_IMPORT = "import pathlib, time\npathlib.Path('ready').touch()\ntime.sleep(300)\n"
SLOW_INVENTORY = """
import pathlib as _pathlib, subprocess as _subprocess, time as _time
_subprocess.Popen(["sleep", "300"])
_pathlib.Path("ready").touch()
_time.sleep(300)
"""

Case = tuple[str, str, signal.Signals]


def cases() -> Iterator[Case]:
    for number in SIGNALS:
        for moment, verbs in (
            ("importing", LIVE | OFFLINE), ("reading", READING), ("connecting", LIVE), ("starting", LIVE),
            ("waiting", LIVE), ("writing", WRITING),
        ):  # fmt: skip
            yield from ((verb, moment, number) for verb in sorted(verbs))


FEW = {("judge", "importing", signal.SIGINT), ("validate", "connecting", signal.SIGINT)}
MORE = {
    ("plan", "reading", signal.SIGTERM),
    ("record", "waiting", signal.SIGHUP),
    ("judge", "writing", signal.SIGTERM),
}


def marks(case: Case) -> tuple[pytest.MarkDecorator, ...]:
    return () if case in FEW else (pytest.mark.exhaustive if case in MORE else pytest.mark.slow,)


@pytest.mark.parametrize(
    ("verb", "moment", "number"),
    [pytest.param(*case, id="-".join((*case[:2], case[2].name)), marks=marks(case)) for case in cases()],
)
def test_a_signal_ends_the_command_and_leaves_nothing(
    verb: str, moment: str, number: signal.Signals, tmp_path: Path, finished: Finished
) -> None:
    work, temporary = tmp_path / "work", tmp_path / "tmp"
    work.mkdir()
    temporary.mkdir()
    mark = uuid.uuid4().hex
    env = {**os.environ, "TMPDIR": str(temporary), "XDG_CACHE_HOME": str(tmp_path / "cache"), "MARK": mark}
    program: tuple[str, ...] = MODULE
    with ExitStack() as stack:
        asked = None
        if moment in ("reading", "connecting", "starting", "waiting"):
            behaviour = {"starting": servers.unstarted, "waiting": servers.hanging}.get(moment, servers.silent)
            port, asked = stack.enter_context(servers.server(behaviour))
            servers.inventory(work, port, SLOW_INVENTORY if moment == "reading" else "")
            if moment == "reading":
                asked = None
        if moment == "importing":
            (tmp_path / "modules").mkdir()
            (tmp_path / "modules/click.py").write_text(SLOW_IMPORT)
            env["PYTHONPATH"] = str(tmp_path / "modules")
        if moment == "writing":
            program = (sys.executable, "-c", SLOW_WRITE)
        if "run" in (OFFLINE | WRITING).get(verb, ()):
            shutil.copytree(finished.folder, work / "run")
        arguments = {"importing": LIVE | OFFLINE, "reading": READING, "writing": WRITING}.get(moment, LIVE)[verb]
        before = files(work)
        process = subprocess.Popen(
            [*program, *arguments], cwd=work, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True, preexec_fn=defaults,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + BUSY_S
            while not (asked.is_set() if asked else (work / "ready").exists()):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline, f"never {moment}"
                time.sleep(0.05)
            process.send_signal(number)
            out, err = process.communicate(timeout=BUSY_S)
            assert process.returncode == 128 + number, (out, err)
            lines = [line for line in err.splitlines() if "rackproof: " in line]
            assert len(lines) == 1, err
            assert lines[0].startswith("rackproof: interrupted; "), err
            assert "with: rackproof " in lines[0], err
            assert "Traceback" not in out + err
            assert marked(f"MARK={mark}") == []
            assert list(temporary.iterdir()) == []
            assert not [path for path in files(work) - before if path.endswith(".part")]
            if moment == "writing":
                assert files(work) - before == {"ready"}
        finally:
            process.kill()
            for pid in marked(f"MARK={mark}"):
                os.kill(pid, signal.SIGKILL)
            left = [command for command in servers.STARTED if command.poll() is None]
            for command in left:
                command.kill()
                command.wait()
            servers.STARTED.clear()
    assert verb in PYINFRAS or left == [], "commands on the node"


def test_the_table_is_as_large_as_the_documentation_says() -> None:
    table = set(cases())
    verbs, moments = {verb for verb, _, _ in table}, {moment for _, moment, _ in table}
    text = " ".join((ROOT / "SECURITY.md").read_text().split())
    assert f"{len(table)} signals, {len(verbs)} verbs × {len(moments)} moments × {len(SIGNALS)} signals" in text


def defaults() -> None:
    """A program in the background inherits that SIGINT and SIGHUP are ignored."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def marked(word: str) -> list[int]:
    """Processes with a word in their environment."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        pid = int(path.parent.name)
        try:
            if pid != os.getpid() and word.encode() in path.read_bytes() and state(pid) not in "ZX":
                pids.append(pid)
        except OSError:
            continue
    return pids


def state(pid: int) -> str:
    return fields(pid)[0]


def fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ["X", "0"]
    return text[text.rfind(")") + 2 :].split()
