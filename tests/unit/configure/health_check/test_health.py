"""The kit's archive, its installation with a python that is not there, and what the program does to a node."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from rackproof import architectures
from rackproof.configure.health_check import kit, operations, requirements
from rackproof.configure.health_check import plan as deploy
from rackproof.configure.health_check.inputs import HealthInputs
from rackproof.configure.known_inputs import MODELS
from rackproof.configure.render import templates
from rackproof.core.architecture import Slurm
from rackproof.core.rack import Node, Rack
from rackproof.errors import ArchitectureError, InventoryError
from rackproof.validation.local import local_context, own_node, read_rack
from tests.unit.configure.rack import architecture, rack, site
from tests.unit.configure.stub import StubHost, run
from tests.unit.published import EVERY
from tests.unit.refusals import refuses
from tests.unit.shell import executable, sh

pytestmark = pytest.mark.few(23)

PROGRAM = "/usr/local/sbin/rackproof-health"


PINNED = f"click==8.3.0 --hash=sha256:{'0' * 64}"


def a_kit(**inputs: Any) -> kit.Kit:
    return kit.Kit(b"archive", (PINNED,), HealthInputs.model_validate(inputs))


def test_archive_is_the_same_twice_and_holds_what_checks_need() -> None:
    data = kit.archive()
    assert data == kit.archive()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        names = set(tar.getnames())
    folders = {"rackproof/data/validators/conftest.py", "rackproof/data/architectures/virtual-rack.yaml"}
    assert {"rackproof/cli/local.py", *folders} <= names
    assert not [name for name in names if "__pycache__" in name or not name.startswith("rackproof/")]


def test_requirements_are_those_of_checks() -> None:
    lines = kit.requirements()
    names = {line.partition("==")[0] for line in lines}
    assert {"pytest-testinfra", "pydantic-core", "click"} <= names  # what they depend on as well
    assert "pyinfra" not in names
    assert all(re.fullmatch(r"[a-z0-9-]+==[^ ]+( ; [^#]+?)?( --hash=sha256:[0-9a-f]{64})+", line) for line in lines)
    assert "http" not in " ".join(lines)


LOCK = """
[[package]]
name = "rackproof"
version = "0"
dependencies = [{ name = "pyinfra" }, { name = "a", version = "1", marker = "x < '2'" }, { name = "a", version = "2" },
  { name = "w", marker = "sys_platform == 'win32'" }]
[[package]]
name = "pyinfra"
version = "3"
[[package]]
name = "a"
version = "1"
wheels = [{ url = "https://i.example/a-1-py3-none-any.whl", hash = "sha256:1" }]
dependencies = [{ name = "b" }]
[[package]]
name = "a"
version = "2"
wheels = [{ url = "https://i.example/a-2-py3-none-any.whl", hash = "sha256:2" }]
[[package]]
name = "b"
version = "1"
wheels = [
  { url = "https://i.example/b-1-cp311-cp311-win_amd64.whl", hash = "sha256:3" },
  { url = "https://i.example/b-1-cp311-cp311-manylinux_2_28_x86_64.whl", hash = "sha256:4" },
]
"""


def test_the_lock_file_is_followed_with_its_markers() -> None:
    assert [requirement.line for requirement in requirements.pinned(LOCK, without=("pyinfra",))] == [
        "a==1 ; (x < '2') --hash=sha256:1",
        "a==2 --hash=sha256:2",
        "b==1 ; (x < '2') --hash=sha256:4",
    ]


test_a_lock_file_that_does_not_say_it_all = refuses(
    lambda lock: requirements.pinned(lock, without=("pyinfra",)),
    ("", "not the lock file of this kit"),
    (LOCK.replace("manylinux_2_28_x86_64", "musllinux_1_2_x86_64"), r"b 1 has no wheel for x86_64 or aarch64"),
    (LOCK.replace('version = "1", marker', "marker"), "a in 2 versions"),
    error=InventoryError,
)


@pytest.mark.parametrize(
    ("wheel", "expected"),
    [
        ("click-8.3.0-py3-none-any.whl", True),
        ("x-1-py2.py3-none-any.whl", True),
        ("x-1-cp39-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", True),
        ("x-1-cp312-cp312-manylinux_2_28_aarch64.whl", True),
        ("x-1-cp310-cp310-manylinux_2_28_x86_64.whl", False),
        ("x-1-cp313-cp313t-manylinux_2_28_x86_64.whl", False),
        ("x-1-cp312-cp312-musllinux_1_2_x86_64.whl", False),
        ("x-1-cp312-cp312-macosx_11_0_arm64.whl", False),
        ("x-1-pp311-pypy311_pp73-manylinux_2_28_x86_64.whl", False),
    ],
)
def test_wheels_that_a_node_may_take(wheel: str, expected: bool) -> None:
    assert requirements.fits(wheel) is expected


@pytest.mark.parametrize(
    ("python", "family", "expected"),
    [
        ("/usr/bin/python3", "debian", ("python3-venv",)),
        ("/usr/bin/python3", "rhel", ("python3.11",)),
        ("/usr/bin/python3.12", "rhel", ()),
        ("/opt/python/bin/python3", "debian", ()),
    ],
)
def test_packages_of_the_python(python: str, family: str, expected: tuple[str, ...]) -> None:
    assert kit.packages(HealthInputs(python=python), family) == expected


def test_another_python_or_kit_is_another_stamp() -> None:
    same = a_kit()
    assert same.stamp == a_kit(time_limit_s=60).stamp
    assert same.stamp != a_kit(python="/usr/bin/python3.12").stamp
    assert same.stamp != kit.Kit(b"newer", same.requirements, same.inputs).stamp


def test_kit_is_installed_once() -> None:
    wanted = a_kit()
    assert run(operations.kit, StubHost({operations.InstalledKit: wanted.stamp}), wanted=wanted) == []
    (script,) = run(operations.kit, StubHost({operations.InstalledKit: "older"}), wanted=wanted)
    assert wanted.stamp not in script


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({}, '--only-binary :all: --require-hashes "$@" -r "$venv/requirements.txt"'),
        ({"wheelhouse": "/mnt/wheels"}, "--no-index --find-links /mnt/wheels"),
        ({"index_url": "https://mirror.example/simple"}, "--index-url https://mirror.example/simple"),
    ],
)
def test_where_packages_come_from(inputs: dict[str, Any], expected: str) -> None:
    assert expected in kit.install_script(a_kit(**inputs))


def test_two_sources_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="not both"):
        HealthInputs(wheelhouse="/mnt/wheels", index_url="https://mirror.example/simple")


def install(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        member = tarfile.TarInfo("rackproof/__init__.py")
        tar.addfile(member, io.BytesIO(b""))
    wanted = kit.Kit(buffer.getvalue(), (PINNED,), HealthInputs(directory=str(folder / "kit"), python=python))
    return sh(kit.install_script(wanted), stdin=kit.standard_input(wanted))


def a_python(folder: Path, pip: int = 0, version: int = 0, kit_starts: int = 0) -> str:
    """A python that makes environments of itself; exit statuses of its parts are the test's."""
    executable(
        folder / "python3",
        f"""\
case "$*" in
  *version_info*) exit {version} ;;
  "-m venv "*) mkdir -p "$3/bin"; printf '#!/bin/sh\\nexit {pip}\\n' > "$3/bin/pip"
     printf '#!/bin/sh\\nexit {kit_starts}\\n' > "$3/bin/python"; chmod 755 "$3/bin/pip" "$3/bin/python" ;;
esac""",
    )
    return str(folder / "python3")


def test_installation_leaves_its_stamp_and_is_found(tmp_path: Path) -> None:
    ended = install(tmp_path, a_python(tmp_path))
    assert ended.returncode == 0, ended.stderr
    result = sh(kit.state_command(str(tmp_path / "kit")))
    assert len(result.stdout.strip()) == 64
    (listed,) = (tmp_path / "kit").glob("venv-*/requirements.txt")
    assert listed.read_text() == f"{PINNED}\n"


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ({"version": 1}, "is older than Python 3.11; name a newer one in health_check.python"),
        ({"pip": 1}, "pip could not install the kit's dependencies"),
        ({"kit_starts": 1}, "the kit does not start"),
    ],
)
def test_installation_that_fails_leaves_no_stamp(tmp_path: Path, parts: dict[str, int], complaint: str) -> None:
    ended = install(tmp_path, a_python(tmp_path, **parts))
    assert ended.returncode == 1
    assert complaint in ended.stderr
    assert not (tmp_path / "kit" / kit.STAMP).exists()


def test_no_python(tmp_path: Path) -> None:
    ended = install(tmp_path, "/usr/bin/python3.99")
    assert ended.returncode == 1
    assert "no /usr/bin/python3.99 here" in ended.stderr


def test_rack_file_reads_back_without_what_checks_do_not_need(tmp_path: Path) -> None:
    nodes = (Node("gpu-01", ("gpu",), {"fabric_addresses": ["10.0.0.1/24"], "password": "hunter2", "ssh_key": "k"}),)
    text = kit.rack_file(Rack("x", nodes), "architecture.yaml")
    assert "hunter2" not in text
    (tmp_path / "rack.yaml").write_text(text)
    rack, named = read_rack(tmp_path / "rack.yaml")
    assert named == "architecture.yaml"
    assert own_node(rack, "gpu-01.rack.example").fabric_address() == "10.0.0.1"


@pytest.mark.parametrize("name", EVERY)
def test_a_node_reads_the_architecture_that_the_deploy_wrote(tmp_path: Path, name: str) -> None:
    """Also one that extends another: its text says so, which a file of a user must not."""
    text = deploy.architecture_text(name)
    (tmp_path / "architecture.yaml").write_text(text)
    role = next(iter(architectures.load(name).model.roles))
    (tmp_path / "rack.yaml").write_text(kit.rack_file(Rack("x", (Node("n1", (role,), {}),)), "architecture.yaml"))
    context, _ = local_context(tmp_path / "rack.yaml", None, None, None, "n1")
    left: Any = {"extends": True, "drop": True, "metadata": {"compared_with"}}
    assert context.arch.model_dump(exclude=left) == architectures.load(name).model.model_dump(exclude=left)
    kept = tmp_path / hashlib.sha256(text.encode()).hexdigest()
    kept.write_text(text)
    assert deploy.architecture_text(str(kept)) == text


def test_the_kit_on_a_node_reads_every_architecture(tmp_path: Path) -> None:
    """It has its own copy of the kit, and nothing else of this folder."""
    with tarfile.open(fileobj=io.BytesIO(kit.archive())) as tar:
        tar.extractall(tmp_path, filter="data")
    texts = {name: deploy.architecture_text(name) for name in EVERY}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    program = (
        "import sys; from pathlib import Path; from rackproof import architectures\n"
        "assert Path(architectures.__file__).is_relative_to(Path.cwd())\n"
        "for name in sys.argv[1:]: print(architectures.beside_rack(Path(name)).model.metadata.id)"
    )
    paths = [str(Path("rackproof").parent), *(path for path in sys.path if path.endswith("site-packages"))]
    done = subprocess.run(
        [sys.executable, "-c", program, *(f"{name}.yaml" for name in texts)],
        cwd=tmp_path, env={"PYTHONPATH": ":".join(paths)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.split() == list(texts), done.stderr


def test_a_rack_file_may_name_a_users_own_architecture(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text(
        "apiVersion: refarch/v1\nextends: virtual-rack\nmetadata: {id: ours, version: 1.0.0, title: Ours}\n"
    )
    (tmp_path / "rack.yaml").write_text(kit.rack_file(Rack("x", (Node("n1", ("gpu",), {}),)), "ours.yaml"))
    context, _ = local_context(tmp_path / "rack.yaml", None, None, None, "n1")
    assert context.arch.metadata.title == "Ours"
    assert context.arch.metadata.derived_from == ("virtual-rack",)


def test_a_node_needs_no_file_of_the_site_that_its_architecture_names(tmp_path: Path) -> None:
    """The deploy's text is whole: what it is scaled from is judged on the controller."""
    text = deploy.architecture_text("hpe-apollo6500-weka-scaled").replace("of: hpe-apollo6500-weka\n", "of: ours\n")
    assert "of: ours" in text
    (tmp_path / "architecture.yaml").write_text(text)
    assert architectures.beside_rack(tmp_path / "architecture.yaml").model.scale


def test_a_name_as_long_as_a_sha256_is_a_name(tmp_path: Path) -> None:
    file = tmp_path / f"{'a' * 59}.yaml"
    file.write_text(deploy.architecture_text("virtual-rack"))
    assert architectures.of_run(str(file)).model.metadata.id == "virtual-rack"


def test_a_stored_architecture_that_was_changed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / hashlib.sha256(b"").hexdigest()
    file.write_text(deploy.architecture_text("virtual-rack"))
    with pytest.raises(ArchitectureError, match="changed after the run stored it"):
        architectures.of_run(str(file))


def test_a_node_knows_which_ports_the_inventory_means_and_not_how_they_are_set_up() -> None:
    stack = {"ports": {"stor0": {"purpose": "storage", "path": "p"}}, "source": "doca"}
    text = kit.rack_file(Rack("x", (Node("gpu-01", ("gpu",), {"nic": stack}),)), "architecture.yaml")
    assert json.loads(text)["nodes"]["gpu-01"]["data"] == {"nic_ports": {"storage": ["stor0"]}}


def test_a_node_knows_all_of_the_inventory_that_its_checks_read() -> None:
    root = Path(kit.__file__).parents[3]
    checks = [*(root / "validators").glob("*.py"), *(root / "rackproof/validation").glob("*.py")]
    text = "\n".join(path.read_text() for path in checks)
    modules = sorted(set(re.findall(r"^from (rackproof\.configure[\w.]+) import", text, re.MULTILINE)))
    helpers = [path for name in modules if (path := root / f"{name.replace('.', '/')}.py").exists()]
    text += "\n".join(path.read_text() for path in (*helpers, root / "rackproof/core/rack.py"))
    key_of = {model.__name__: key for key, model in MODELS.items()}
    read = set(re.findall(r"\.data(?:\.get\(|\[)\"(\w+)\"", text)) | set(re.findall(r'"(fabric_\w+es)"', text))
    by_model = r"\.data(?:\.get\(|\[)(\w+)\.KEY|read_inputs\(node, (\w+)\)"
    read |= {key_of[one or other] for one, other in re.findall(by_model, text)}
    assert read - {"architecture", "nic"} <= set(kit.DATA_KEYS)
    assert {"fabric_addresses", "fabric_second_addresses", "containers", "scratch_drives", "storage_client"} <= read


def test_a_node_computes_the_servers_of_the_rack_and_knows_no_more_of_its_containers(tmp_path: Path) -> None:
    whole = Rack(
        "x",
        (
            Node(
                "storage-01",
                ("storage",),
                {"fabric_addresses": ["10.0.0.9/24"], "fabric_second_addresses": ["10.1.0.9/24"]},
            ),
            Node("gpu-01", ("gpu",), {"containers": {"user": "ada", "registry_mirrors": ["https://me:hunter2@r"]}}),
        ),
    )
    text = kit.rack_file(whole, "architecture.yaml")
    assert "hunter2" not in text
    (tmp_path / "rack.yaml").write_text(text)
    rack, _ = read_rack(tmp_path / "rack.yaml")
    nfs = architectures.load("virtual-rack").model.storage["nfs-tcp"]
    assert nfs.addresses(rack) == nfs.addresses(whole)
    assert len(nfs.addresses(rack)) == 2
    assert own_node(rack, "gpu-01").data["containers"] == {"user": "ada"}


@pytest.mark.parametrize(
    ("inputs", "known"),
    [
        ({"cephfs": {"fsid": "f", "secret": "hunter2"}, "weka": {"token": "hunter2"}}, {"cephfs": {"fsid": "f"}}),
        ({"cephfs": {"secret": "hunter2"}}, None),
        ({"cephfs": "hunter2"}, None),
        ({}, None),
    ],
)
def test_a_node_knows_the_fsid_of_its_cluster_and_no_secret(inputs: Any, known: Any) -> None:
    text = kit.rack_file(Rack("x", (Node("gpu-01", ("gpu",), {"storage_client": inputs}),)), "architecture.yaml")
    assert "hunter2" not in text
    assert json.loads(text)["nodes"]["gpu-01"]["data"].get("storage_client") == known


def test_files_of_a_node_and_where_they_apply() -> None:
    here = site("gpu-01")
    chosen = HealthInputs()
    paths = {entry.path: entry for entry in deploy.files(here, chosen, "text")}
    assert PROGRAM in paths
    assert json.loads(paths["/etc/rackproof/rack.yaml"].content)["nodes"]["gpu-02"]["groups"] == ["gpu"]  # type: ignore[union-attr]
    own = Slurm.model_validate({"health_check": PROGRAM})
    theirs = Slurm.model_validate({"health_check": "/usr/sbin/nhc"})
    for declared, name, expected in ((own, "gpu-01", True), (own, "storage-01", False), (theirs, "gpu-01", False)):
        assert (
            deploy.why_nothing(site(name, architecture().model_copy(update={"slurm": declared}), rack())) is None
        ) is expected


def test_a_virtual_rack_does_without_the_kit_unless_told() -> None:
    assert kit.inputs_of(site("gpu-01").node, True).install is False
    told = site("gpu-01")
    told.node.data["health_check"] = {"install": True}  # type: ignore[index]
    assert kit.inputs_of(told.node, True).install is True


SCONTROL = """\
case "$*" in
  *update*) echo "$*" >> "$LOG" ;;
  *) [ -n "$SLURM" ] || exit 1; echo "NodeName=gpu-01 Arch=x86_64 State=$SLURM ThreadsPerCore=1 $TAIL" ;;
esac
"""
OURS = "Reason=rackproof: gpu.count: expected 8, actual 7 [root@2026-11-20T22:14:09]"
THEIRS = "Reason=new DIMM on Monday [jane@2026-11-20T22:14:09]"


def health(
    folder: Path, status: int, line: str, slurm: str = "IDLE", tail: str = "", drain_on: tuple[str, ...] | None = None
) -> tuple[subprocess.CompletedProcess[str], str]:
    """Run the program with a kit that ends like this, and a controller that has the node like that."""
    chosen = HealthInputs(directory=str(folder / "kit"))
    text = templates.text(
        PROGRAM, node="gpu-01", directory=chosen.directory, time_limit=chosen.time_limit_s,
        arguments=kit.check_arguments(chosen), drain_on=chosen.drain_on if drain_on is None else drain_on,
    )  # fmt: skip
    bin_, log = folder / "bin", folder / "log"
    log.write_text("")
    executable(bin_ / "scontrol", SCONTROL)
    executable(bin_ / "logger")
    ending = f"[ {status} -ne 3 ] || echo broken >&2\nexit {status}"
    executable(folder / "kit/bin/rackproof", f"printf '%s\\n' '{line}'\n{ending}")
    text = text.replace("PATH=/usr/local/sbin", f"PATH={bin_}:/usr/local/sbin").replace(
        "state=/run/rackproof/health", f"state={folder}/state"
    )
    ended = sh(text, "rackproof-health", "--run", LOG=str(log), SLURM=slurm, TAIL=tail)
    return ended, log.read_text()


BAD = "gpu.count: expected 8, actual 7"


@pytest.mark.parametrize(
    ("status", "slurm", "tail", "rc", "update"),
    [
        (0, "IDLE", "", 0, ""),
        (1, "IDLE", "", 0, f"State=DRAIN Reason=rackproof: {BAD}"),
        (2, "MIXED", "", 0, f"State=DRAIN Reason=rackproof: {BAD}"),
        (124, "IDLE", "", 0, "State=DRAIN Reason=rackproof: no result within 300 s"),
        (3, "IDLE", "", 3, ""),
        (1, "IDLE+DRAIN", OURS, 0, ""),
        (1, "IDLE+DRAIN", THEIRS, 0, ""),
        (0, "IDLE+DRAIN", OURS, 0, "State=RESUME"),
        (0, "IDLE+DRAIN", THEIRS, 0, ""),
        (0, "DOWN", OURS, 0, ""),
        (1, "", "", 1, ""),
        (0, "", "", 0, ""),
    ],
)
def test_the_program_drains_and_takes_back_only_its_own(
    tmp_path: Path, status: int, slurm: str, tail: str, rc: int, update: str
) -> None:
    ended, log = health(tmp_path, status, "" if status == 0 else BAD, slurm, tail)
    assert ended.returncode == rc, ended.stderr
    assert log.strip().removeprefix("update NodeName=gpu-01 ") == update
    assert ended.stderr == ""


def test_what_takes_a_node_out_is_an_input(tmp_path: Path) -> None:
    ended, log = health(tmp_path, 2, BAD, drain_on=("failed",))
    assert (ended.returncode, log) == (0, "")
    assert f"unmeasured: {BAD}" in ended.stdout


def test_no_kit_is_not_health(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    text = templates.text(PROGRAM, node="x", directory=str(tmp_path), time_limit=10, arguments=[], drain_on=[])
    text = text.replace("state=/run/rackproof/health", f"state={tmp_path}/state")
    ended = sh(text, "p", "--run")
    assert ended.returncode == 3
    assert "this node is not checked" in ended.stdout
