"""Real accelerators in the site's container image: how it is started, and what proves that it was."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rackproof.bench.ingest.image import LABEL, Image, check_image, image_of
from rackproof.bench.ingest.reader import read_ingest
from rackproof.bench.ingest.runs import TOOL
from rackproof.bench.step import BenchContext
from rackproof.bench.storage.program_runs import configs_of
from rackproof.bench.user import HOME, Account
from rackproof.core.evidence import Scope
from rackproof.core.rack import Rack
from rackproof.parse import ParseError
from rackproof.remote.command import CommandResult
from tests.unit.bench import node_programs
from tests.unit.bench.test_ingest import JOB, NODES, POINT, count_reads, place, profile, steps
from tests.unit.bench.test_real_accelerators import REAL, STAND_IN, ranks, run
from tests.unit.fakes import lab_rack, reply, scripted, virtual_rack
from tests.unit.shell import executable, sh
from tests.unit.storage_nodes import StorageNodes

pytestmark = pytest.mark.few(5)

ID, OTHER = "a1" * 32, "b2" * 32
NAME = "registry.example/torch:2.9"
ACCOUNT = Account(990, 991)
COMMAND = f"python3 -I {HOME}/ingest_node.py '{{}}'"


def rack(*names: str | None) -> Rack:
    """The virtual rack whose GPU nodes name these images."""
    made = lab_rack(len(names) or 2)
    images = dict(zip((node.name for node in made.group("gpu")), names, strict=False))
    return replace(
        made,
        nodes=tuple(
            replace(node, data={**node.data, "ingest": {"image": images[node.name]}}) if images.get(node.name) else node
            for node in made.nodes
        ),
    )


@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize("gpus", [True, False])
def test_the_container_is_the_nodes_but_for_its_programs(tmp_path: Path, engine: str, gpus: bool) -> None:
    executable(tmp_path / engine, '#!/bin/sh\nprintf "%s\\n" "$@"\n')
    prefix = Image(engine, NAME, ID).prefix(ACCOUNT, ("/mnt/a", "/mnt/b"), gpus, 300.0)
    path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-c", prefix + COMMAND], capture_output=True, text=True, env=path, check=True)
    words = done.stdout.splitlines()
    assert words[0] == "run"
    assert words[words.index(ID) :] == [ID, "-k", "10", "300", "python3", "-I", f"{HOME}/ingest_node.py", "{}"]
    options = words[: words.index(ID)]
    assert options[options.index("--entrypoint") + 1] == "timeout"  # not the image's, which may print a banner
    assert options[options.index("--user") + 1] == "990:991"
    volumes = {words[place + 1] for place, word in enumerate(words) if word == "--volume"}
    assert volumes == {f"{HOME}:{HOME}", "/mnt/a:/mnt/a:rslave", "/mnt/b:/mnt/b:rslave"}
    assert options[options.index("--label") + 1] == LABEL
    assert {"--rm", "--pull=never", "--network=host", "--cap-drop=all", "RACKPROOF_COMMAND"} <= set(options)
    asked = {"docker": ["--gpus", "all"], "podman": ["--device", "nvidia.com/gpu=all"]}[engine]
    assert (asked[1] in options) == gpus


LISTING = """case $* in
"ps -a -q --filter label=rackproof-bench") LIST ;;
"rm -f "*) echo "$*" >>FOLDER/asked; exit RC ;;
*) exit 9 ;;
esac"""


@pytest.mark.parametrize(
    ("listed", "rc", "removed", "status"),
    [
        ("echo a1; echo b2", 0, "rm -f a1 b2\n", 0),
        (":", 0, "", 0),
        ("echo a1", 1, "rm -f a1\n", 1),
        ("echo 'Cannot connect to the Docker daemon' >&2; exit 1", 0, "", 1),
    ],
)
def test_containers_that_a_killed_client_left_are_removed(
    tmp_path: Path, listed: str, rc: int, removed: str, status: int
) -> None:
    text = LISTING.replace("LIST", listed).replace("FOLDER", str(tmp_path)).replace("RC", str(rc))
    executable(tmp_path / "programs/docker", text)
    ended = sh(Image("docker", NAME, ID).sweep, programs=tmp_path / "programs")
    assert ended.returncode == status
    assert removed == ((tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else "")


def ask(answers: Mapping[str, CommandResult]) -> Any:
    return lambda command: answers


def asked(names: tuple[str | None, ...], ids: tuple[str, ...], runtime: str | None = "podman") -> Image | None:
    declared = virtual_rack()
    assert declared.containers is not None
    containers = declared.containers.model_copy(update={"runtime": runtime}) if runtime else None
    declared = declared.model_copy(update={"containers": containers})
    answers = {
        node: reply(node, "inspect", f"{id_}\n", 0 if id_ else 125) for node, id_ in zip(NODES, ids, strict=True)
    }
    return image_of(declared, rack(*names), NODES, ask(answers))


def test_all_nodes_have_the_image_that_the_inventory_names() -> None:
    assert asked((NAME, NAME), (f"sha256:{ID}", ID)) == Image("podman", NAME, ID)
    assert asked((None, None), (ID, ID)) is None


@pytest.mark.parametrize(
    ("names", "ids", "runtime", "why"),
    [
        ((NAME, None), (ID, ID), "podman", "ingest.image of gpu-02 differs from that of gpu-01"),
        ((NAME, NAME), (ID, OTHER), "podman", "is another image on gpu-02 than on gpu-01"),
        ((NAME, NAME), (ID, ""), "docker", f"gpu-02: no image {NAME}: inspect failed"),
        ((NAME, NAME), (ID, "<none>"), "podman", f"gpu-02: no image {NAME}: inspect: <none>"),
        ((NAME, NAME), (ID, ID), "enroot", "needs docker or podman; containers.runtime is enroot"),
        ((NAME, NAME), (ID, ID), None, "needs docker or podman; containers.runtime is none"),
    ],
)
def test_an_image_that_cannot_be_used_is_named(
    names: tuple[str | None, ...], ids: tuple[str, ...], runtime: str | None, why: str
) -> None:
    with pytest.raises(ParseError, match=re.escape(why)):
        asked(names, ids, runtime)


def inside(id_: str | None, wanted: str | None) -> list[CommandResult]:
    """A run of which the configuration names one image, and the command another."""

    def change(configs: dict[str, Any], documents: dict[str, Any]) -> None:
        for config in configs.values():
            config |= {"image": {"name": NAME, "id": wanted}} if wanted else {}

    prefix = Image("podman", NAME, id_).prefix(ACCOUNT, ("/mnt/a",), True, 9.0) if id_ else ""
    return [
        replace(answer, command=f"mounted; {prefix}{answer.command.removeprefix('x ')}")
        if configs_of(answer.command, TOOL)
        else answer
        for answer in run(ranks(change))
    ]


def test_the_page_names_the_image() -> None:
    reading = read_ingest(inside(ID, ID), virtual_rack())(place("ingest.samples_rate"))
    assert reading.conditions["programs"].endswith(f", of the image {NAME} ({ID[:12]})")
    assert reading.conditions["image"] == ID


@pytest.mark.parametrize(("id_", "wanted"), [(ID, None), (None, ID), (OTHER, ID)])
def test_a_run_in_another_image_than_its_configuration_says_is_no_number(id_: str | None, wanted: str | None) -> None:
    with pytest.raises(ParseError, match=r"expected (no|the) image"):
        read_ingest(inside(id_, wanted), virtual_rack())(place("ingest.samples_rate"))
    check_image("gpu-01", None, COMMAND)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[BenchContext]:
    """One node with the image, whose programs run on this machine, with a stand-in for PyTorch."""
    nodes = StorageNodes(virtual_rack())
    mount, home = tmp_path / "mount", tmp_path / "home"
    mount.mkdir()
    home.mkdir()

    def answer(node: str, command: str) -> CommandResult | None:
        if command.startswith("podman image inspect "):
            return reply(node, command, f"{ID}\n")
        there = command.replace('"folder": ""', f'"folder": "{STAND_IN}"')
        there = there.replace('"python": "python3"', f'"python": "{sys.executable}"')
        result = node_programs.answer(node, there, POINT, mount, home)
        if result is None:
            return nodes.answer(node, command)
        if configs_of(command, TOOL):
            count_reads(nodes, result)
        return replace(result, command=command)

    with scripted(tmp_path / "run", answer, rack(NAME)) as session:
        yield BenchContext(session, str)


def test_a_leg_and_what_it_is_compared_with_run_in_the_image(
    context: BenchContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also an emulated job's run alone: with other programs than the run beside, their difference says nothing."""
    job = REAL.model_copy(update={"model": "resnet18", "batch": 2, "seconds": 4})
    emulated = JOB.model_copy(update={"workload": "resnet", "beside": "train", "seconds": 4, "warmup_s": 1})
    step, beside = (next(s for s in steps(profile(train=job, emulated=emulated), 1) if part in s.id)
                    for part in ("/train/", "beside"))  # fmt: skip
    monkeypatch.setattr("rackproof.bench.ingest.real.STEPS", 1)  # on a busy machine a rank makes few
    run = node_programs.punctual(monkeypatch, lambda: step.execute(context))
    measured = {(m.metric, m.scope): m for m in run}
    rate = measured["ingest.samples_rate", Scope.RACK]
    assert rate.samples, rate.reason
    assert f"of the image {NAME}" in rate.conditions["programs"]
    started = [command for _, command in context.session.fleet.asked if configs_of(command, TOOL)]  # type: ignore[attr-defined]
    assert all(f" image={ID} " in command and " in-image python3 -I " in command for command in started)
    list(beside.execute(context))
    fleet: Any = context.session.fleet
    alone = [command for _, command in fleet.asked if [c["job"] for c in configs_of(command, TOOL)] == ["emulated"]]
    assert alone
    assert all(f" image={ID} " in command for command in alone)
