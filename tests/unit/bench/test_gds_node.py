"""The program that runs gdsio, with a stand-in for gdsio and nvidia-smi: no GPU was ever used."""

from __future__ import annotations

import importlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from rackproof import bench
from rackproof.bench.storage import commands
from rackproof.bench.storage.gds_reader import SIMULATED
from rackproof.configure.render import Templates
from rackproof.parse.gdsio import parse_gdsio
from tests.unit.bench import node_programs

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "gds_node.py"
GDSIO = """#!/bin/sh
while [ $# -gt 0 ]; do case $1 in -D) d=$2 ;; -w) w=$2 ;; -s) s=$2 ;; -I) i=$2 ;; esac; shift; [ $# = 0 ] || shift; done
grep -q '"allow_compat_mode" *: *false' "$CUFILE_ENV_PATH_JSON" || exit 9
[ "$CUFILE_ALLOW_COMPAT_MODE $CUFILE_FORCE_COMPAT_MODE" = 'false false' ] || exit 9
[ "$i" = 0 ] || for n in $(seq 0 $((w - 1))); do truncate -s "$s" "$d/gdsio.$n"; done
[ ! -e "$d/../fails" ] || { echo 'file register error: GPUDirect Storage not supported on current file'; exit 1; }
echo "IoType: READ of $w threads in $d"
"""
TWO = "GPU 0: NVIDIA H200 (UUID: GPU-1)\\nGPU 1: NVIDIA H200 (UUID: GPU-2)\\n"


def use(folder: Path, action: str, gpus: str = TWO, *, gdsio: bool = True, gdsio_text: str = GDSIO) -> dict[str, Any]:
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    programs = {"nvidia-smi": f"#!/bin/sh\nprintf '{gpus}'\n"} | ({"gdsio": gdsio_text} if gdsio else {})
    for name, text in programs.items():
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    config = {"job": action, "action": action, "folder": str(folder / "files"), "threads": 3, "file_bytes": 8192,
              "block_bytes": 4096, "seconds": 2}  # fmt: skip
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}"}
    return node_programs.document(PROGRAM, json.dumps(config), env=environment)


def test_every_gpu_has_its_folder_and_its_answer(tmp_path: Path) -> None:
    for action in ("write", "read"):
        answer = use(tmp_path, action)
        assert [(row["gpu"], row["status"], row["sizes"]) for row in answer["gpus"]] == [
            (gpu, 0, [8192] * 3) for gpu in (0, 1)
        ]
        assert answer["gpus"][1]["text"] == f"IoType: READ of 3 threads in {tmp_path}/files/gpu1\n"


def test_variables_that_send_cufile_through_host_memory_are_overridden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUFILE_FORCE_COMPAT_MODE", "true")
    monkeypatch.setenv("CUFILE_ALLOW_COMPAT_MODE", "true")
    assert [row["status"] for row in use(tmp_path, "write")["gpus"]] == [0, 0]


@pytest.mark.parametrize("force", ["true", "false"])
def test_the_node_s_configuration_is_used_without_its_ways_through_host_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: str
) -> None:
    configured = tmp_path / "etc-cufile.json"
    modes = f'"allow_compat_mode" : true, "force_compat_mode": {force}'
    configured.write_text(f'{{"properties": {{{modes}, "max_direct_io_size_kb": 16384}}}}')
    monkeypatch.syspath_prepend(Path(bench.__file__).parent)
    monkeypatch.syspath_prepend(Path(commands.__file__).parent)
    gds_node = importlib.import_module("gds_node")
    monkeypatch.setattr(gds_node, "CONFIGURED", str(configured))
    used = json.loads(Path(gds_node.strict(str(tmp_path))).read_text())["properties"]
    assert used == {"allow_compat_mode": False, "force_compat_mode": False, "max_direct_io_size_kb": 16384}


def test_a_file_system_without_gpudirect_storage_is_not_read_through_memory(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "fails").touch()
    (first, _) = use(tmp_path, "write")["gpus"]
    assert first["status"] == 1
    assert "not supported on current file" in first["text"]


def test_the_stand_in_of_the_virtual_rack_moves_every_byte_and_says_what_it_is(tmp_path: Path) -> None:
    text = Templates(ROOT / "templates").text("usr/local/bin/gdsio")
    for action in ("write", "read"):
        answer = use(tmp_path, action, gdsio_text=text)
        for row in answer["gpus"]:
            assert (row["status"], row["sizes"]) == (0, [8192] * 3), row
            assert row["text"].startswith(SIMULATED)
            result = parse_gdsio(row["text"])
            assert (result.io, result.transfer, result.threads, result.block_bytes) == (
                action.upper(), "GPUD", 3, 4096,
            )  # fmt: skip
            assert result.moved_bytes >= 3 * 8192
    assert result.seconds == pytest.approx(2, rel=0.2)
    (tmp_path / "files/gpu1/gdsio.2").unlink()
    first, second = use(tmp_path, "read", gdsio_text=text)["gpus"]
    assert (first["status"], second["status"]) == (0, 1)
    assert "No such file" in second["text"]


def test_a_gpu_whose_folder_cannot_be_made_leaves_no_gdsio_of_another_behind(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "gpu1").touch()
    waits = f'#!/bin/sh\necho $$ > "{tmp_path}/pid"\nexec sleep 60\n'
    assert "File exists" in use(tmp_path, "write", gdsio_text=waits)["error"]
    time.sleep(0.5)  # one that was left has written its number by then
    number = (tmp_path / "pid").read_text().strip() if (tmp_path / "pid").exists() else "none"
    running = Path(f"/proc/{number}/cmdline")
    assert not running.exists() or not running.read_bytes(), "it still runs"


def test_a_node_without_gpus_or_gdsio_says_so(tmp_path: Path) -> None:
    assert "lists no GPU" in use(tmp_path, "read", "")["error"]
    (tmp_path / "bin" / "gdsio").unlink()
    assert "gdsio is not installed" in use(tmp_path, "read", gdsio=False)["error"]
