"""The last step before a shell or a file: what the models refuse already is quoted or refused once more."""

from __future__ import annotations

from pathlib import Path

import pytest

from rackproof.architectures import load
from rackproof.bench.collectives import launchers
from rackproof.bench.links import steps as links
from rackproof.configure.containers import bridge
from rackproof.configure.render import Templates
from rackproof.core.architecture import Fabric, LinkProfile
from rackproof.errors import Refused
from tests.unit.shell import executable, sh

HOSTILE = "x'$(touch pwned)`touch pwned`\";touch pwned;#"


def run(command: str, folder: Path, *programs: str) -> list[str]:
    """Runs a command whose programs only print their arguments, one a line."""
    for name in programs:
        executable(folder / name, 'printf "%s\\n" "$@"')
    done = sh(command, cwd=folder, programs=folder)
    assert not (folder / "pwned").exists()
    return done.stdout.splitlines()


def test_the_prefix_of_rdma_devices_is_one_word_for_perftest(tmp_path: Path) -> None:
    fabric = Fabric(kind="roce", mtu=9000, source="x").model_copy(update={"rdma_prefix": HOSTILE})
    profile = LinkProfile(rdma_duration_s=1, latency_iterations=5, tcp_duration_s=1)
    end = links.End("n", HOSTILE, HOSTILE, "")
    for tool in links._tools(load("virtual-rack").model, fabric, profile, 0):
        for command in (tool.server(end), tool.client(end, end)):
            printed = run(command, tmp_path, "ib_write_bw", "ib_write_lat", "iperf3")
            assert printed
            assert f"{HOSTILE}0" in printed or HOSTILE in printed


def test_interface_and_nodes_are_words_for_the_launchers(tmp_path: Path) -> None:
    printed = run(launchers.mpirun([HOSTILE], 1, HOSTILE) + launchers.exported({"A": HOSTILE}), tmp_path, "mpirun")
    assert {HOSTILE, f"{HOSTILE}:1", f"A={HOSTILE}"} <= set(printed)
    command = launchers.srun([HOSTILE], 1, {"A": HOSTILE}, 60, mpi=True, gpus=True, partition=HOSTILE)
    printed = run(command, tmp_path, "srun")
    assert {f"--nodelist={HOSTILE}", f"--partition={HOSTILE}"} <= set(printed)


def test_a_mount_of_the_container_bridge_is_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge, "ROOT", str(tmp_path / "root"))
    run(bridge.root_script((f"/{HOSTILE}",)), tmp_path)
    assert (tmp_path / "root" / HOSTILE).is_dir()
    assert run(bridge.state_command((f"/{HOSTILE}",)), tmp_path) == ["yes"]


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\x00b", "a\x1b[2Jb"])
def test_no_template_takes_a_second_line(tmp_path: Path, value: str) -> None:
    (tmp_path / "x.conf.j2").write_text("key={{ value }}\n")
    templates = Templates(tmp_path)
    assert templates.text("/x.conf", value="a\tb") == "key=a\tb\n"
    with pytest.raises(Refused, match="has a control character"):
        templates.text("/x.conf", value=value)
