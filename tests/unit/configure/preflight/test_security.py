"""Prohibitions of the operating system: read, and named with the part of the node that they stop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.configure.network import Port
from rackproof.configure.preflight import operations, security
from rackproof.configure.preflight.security import BETWEEN, SecurityState, Zone, parse_state
from rackproof.configure.slurm.inputs import SlurmInputs
from rackproof.core.architecture import Architecture, Containers, Slurm, Storage
from rackproof.core.rack import Node
from tests.unit.configure.preflight import cases
from tests.unit.shell import executable, sh

QUIET = SecurityState(False, None, {}, False, False)
PORTS = (Port("rail0", "mlx5_0", "10.61.0.1/24", 9000), Port("rail1", "mlx5_1", "10.61.1.1/24", 9000))
ANSWER = """\
1
--
active
public
--
public (default)
  interfaces: eno1 rail1
trusted
  sources: 10.61.0.0/24 ipset:nodes
--

--
"""


def test_an_answer_is_read() -> None:
    state = parse_state(ANSWER.splitlines())
    assert state == SecurityState(
        True, "public", {"public": Zone(("eno1", "rail1")), "trusted": Zone((), ("10.61.0.0/24", "ipset:nodes"))},
        False, False,
    )  # fmt: skip
    ubuntu = parse_state(["", "--", "--", "--", "1", "--", "podman "])
    assert ubuntu == replace(QUIET, userns_restricted=True, podman_profile=True)


@pytest.mark.parametrize("answer", ["", "1\n--\n--\n--\n", "1\n2\n--\n--\n--\n1\n--\n", "1\n--\nwhat\n--\n--\n1\n--\n"])
def test_anything_else_is_no_answer(answer: str) -> None:
    with pytest.raises(ValueError, match=r"sections|no answer"):
        parse_state(answer.splitlines())


def test_the_question_is_answered_here() -> None:
    done = sh(security.COMMAND)
    parse_state(done.stdout.splitlines())


def test_firewalld_is_asked_where_it_runs(tmp_path: Path) -> None:
    for name, body in (
        ("systemctl", '[ "$*" = "-q is-active firewalld.service" ]'),
        ("firewall-cmd", 'case "$1" in *default*) echo drop;; *) printf "drop\\n  interfaces: eno1\\n";; esac'),
    ):
        executable(tmp_path / name, body)
    done = sh(security.COMMAND, programs=tmp_path)
    state = parse_state(done.stdout.splitlines())
    assert (state.default_zone, state.zones) == ("drop", {"drop": Zone(("eno1",))})


def architecture(**changes: Any) -> Architecture:
    bare: dict[str, Any] = {"storage": {}, "slurm": None, "containers": None}
    return cases.architecture().model_copy(update={**bare, **changes})


def lines(
    state: SecurityState, arch: Architecture, ports: tuple[Port, ...] = PORTS, groups: tuple[str, ...] = ("gpu",)
) -> dict[str, str]:
    problems = security.problems(state, arch, Node("gpu-01", groups, {}), ports, SlurmInputs(node_port=7000))
    return {problem.id: problem.line for problem in problems}


def storage(fstype: str, class_: str = "parallel", **more: Any) -> Storage:
    plain = {"class": class_, "mountpoint": "/mnt/x", "fstype": fstype, "source": "/x", "client_roles": ["gpu"]}
    return Storage.model_validate({**plain, **more})


def test_firewalld_is_named_with_what_it_closes() -> None:
    arch = architecture(
        slurm=Slurm(controller_role="head"), storage={"w": storage("wekafs", servers=["10.9.0.1"], managed=False)}
    )
    line = lines(replace(QUIET, default_zone="public"), arch)["host.firewall"]
    assert line.startswith("firewalld: expected inactive, or rail0, rail1 in its zone trusted, actual active with the")
    for words in ("default zone public", "slurmd TCP 7000", "WEKA TCP and UDP 14000", BETWEEN):
        assert words in line
    assert "slurmctld" not in line
    assert "--zone=trusted --add-source=10.61.0.0/24 --add-source=10.61.1.0/24" in line
    assert "slurmctld TCP 6817" in lines(replace(QUIET, default_zone="public"), arch, groups=("head",))["host.firewall"]


@pytest.mark.parametrize(
    ("default", "zones", "closed"),
    [
        (None, {}, []),
        ("trusted", {}, []),
        ("public", {"trusted": Zone(sources=("10.61.0.0/16",))}, []),
        ("public", {"trusted": Zone(("rail0", "rail1"))}, []),
        ("public", {"trusted": Zone(("rail0",)), "public": Zone(("rail1",))}, ["10.61.1.0/24"]),
        ("public", {"trusted": Zone(sources=("10.61.0.0/24", "aa:bb:cc:dd:ee:ff"))}, ["10.61.1.0/24"]),
        ("public", {"trusted": Zone(sources=("10.61.0.7",))}, ["10.61.0.0/24", "10.61.1.0/24"]),
        ("trusted", {"public": Zone(("rail1",))}, ["10.61.1.0/24"]),
        ("", {}, ["10.61.0.0/24", "10.61.1.0/24"]),
    ],
)
def test_a_network_that_is_trusted_is_open(default: str | None, zones: dict[str, Zone], closed: list[str]) -> None:
    line = lines(replace(QUIET, default_zone=default, zones=zones), architecture()).get("host.firewall", "")
    assert [network for network in ("10.61.0.0/24", "10.61.1.0/24") if network in line] == closed
    assert bool(line) is bool(closed)


def test_a_node_without_services_may_have_a_firewall() -> None:
    alone = architecture(fabric=None)
    assert lines(replace(QUIET, default_zone="public"), alone, ()) == {}
    served = architecture(fabric=None, storage={"n": storage("nfs", "nfs", server_role="gpu", client_roles=["head"])})
    assert "NFS TCP 2049" in lines(replace(QUIET, default_zone="public"), served, ())["host.firewall"]
    assert lines(replace(QUIET, default_zone="trusted"), served, ()) == {}
    followed = {"trusted": Zone(sources=("10.9.0.0/24",))}  # what the message says to do
    assert lines(replace(QUIET, default_zone="public", zones=followed), served, ()) == {}


def test_lustre_and_selinux() -> None:
    lustre = architecture(storage={"lfs": storage("lustre", servers=["10.9.0.1"], managed=False)})
    line = lines(replace(QUIET, enforcing=True), lustre)["host.selinux"]
    assert "SELinux: expected permissive for Lustre (lfs), actual enforcing; set SELINUX=permissive" in line
    assert lines(QUIET, lustre) == {}
    assert lines(replace(QUIET, enforcing=True), lustre, groups=("head",)) == {}
    assert lines(replace(QUIET, enforcing=True), architecture()) == {}


@pytest.mark.parametrize(
    ("runtime", "profile", "sysctl", "fires"),
    [
        ("enroot", True, {}, True),
        ("enroot", False, {security.USERNS: "0"}, False),
        ("enroot", False, {security.USERNS: "1"}, True),
        ("podman", False, {}, True),
        ("podman", True, {}, False),
        ("docker", False, {}, False),
    ],
)
def test_user_namespaces_of_ubuntu(runtime: str, profile: bool, sysctl: dict[str, str], fires: bool) -> None:
    arch = architecture(containers=Containers.model_validate({"runtime": runtime}))
    arch = arch.model_copy(update={"system": arch.system.model_copy(update={"sysctl": sysctl})})
    state = replace(QUIET, userns_restricted=True, podman_profile=profile)
    line = lines(state, arch).get("host.userns", "")
    assert bool(line) is fires
    assert f'add {security.USERNS}: "0" to system.sysctl' in line or not fires
    assert lines(replace(state, userns_restricted=False), arch) == {}


@pytest.mark.parametrize(
    ("os_id", "version", "runtime", "asked"),
    [
        ("rocky", "9.4", None, True),
        ("ubuntu", "24.04", "podman", True),
        ("ubuntu", "24.04", "enroot", True),
        ("ubuntu", "24.04", "docker", False),
        ("ubuntu", "24.04", None, False),
        ("ubuntu", "22.04", "podman", False),
        ("debian", "13", "podman", False),
    ],
)
def test_a_node_is_asked_only_where_it_can_matter(os_id: str, version: str, runtime: str | None, asked: bool) -> None:
    arch = architecture(containers=Containers.model_validate({"runtime": runtime}) if runtime else None)
    machine = cases.machine(os_id=os_id, os_version=version)
    assert security.concerned(machine, arch, Node("gpu-01", ("gpu",), {})) is asked


def test_no_answer_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def get_fact(self, fact: type) -> None:
            return None

    monkeypatch.setattr(operations, "host", Silent())
    site: Any = type("S", (), {"architecture": architecture(), "node": Node("gpu-01", ("gpu",), {}), "ports": PORTS})()
    (problem,) = operations._forbidden(site, cases.machine(os_id="rocky", os_version="9.4"))
    assert problem.id == "answer"
    assert operations._forbidden(site, cases.machine()) == ()
