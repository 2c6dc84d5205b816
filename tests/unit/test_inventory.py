"""Inventories: what pyinfra would read, or one line that says why not."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from rackproof.errors import InventoryError
from rackproof.inventory import LOGIN_FILES, load_rack
from rackproof.run.plan import plan_deploys
from tests.unit.refusals import error_of
from tests.unit.warm_python import cold_run

pytestmark = [pytest.mark.few(16), pytest.mark.usefixtures("warm_python")]

ROOT = Path(__file__).parents[2]

GOOD = """
from os import path
gpu = [("gpu-01", {"fabric_addresses": ["10.0.0.1/24"], "helper": print}), "gpu-02"]
storage = ["storage-01"]
"""


def write(folder: Path, text: str) -> str:
    path = folder / "rack.py"
    path.write_text(text)
    return str(path)


def test_groups_and_data_are_pyinfras_own(tmp_path: Path) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "gpu.py").write_text("colour = 'green'\n")
    rack = load_rack(write(tmp_path, GOOD))
    assert [n.name for n in rack.group("gpu")] == ["gpu-01", "gpu-02"]
    assert rack.node("gpu-01").fabric_address() == "10.0.0.1"
    assert rack.node("gpu-02").data["colour"] == "green"
    assert rack.node("storage-01").groups == ("storage",)
    assert "helper" not in rack.node("gpu-01").data


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gpu = ['a', 'b', 'a']\n", "group 'gpu' lists a twice"),
        ("gpu = [('a', {}), 'a']\n", "group 'gpu' lists a twice"),
        ("x = 1\ngpu = [missing]\n", "line 2: NameError: name 'missing' is not defined"),
        ("gpu = ['a'\n", "line 1: SyntaxError"),
        ("raise SystemExit('no rack here')\n", "no rack here"),
        ("pass\n", "lists no node"),
        ("gpu = []\n", "lists no node"),
    ],
)
def test_a_bad_inventory_is_one_line_with_its_name(tmp_path: Path, text: str, reason: str) -> None:
    path = write(tmp_path, text)
    message = error_of(InventoryError, load_rack, path)
    assert message.startswith(f"{path}: ")
    assert reason in message


def test_an_absent_inventory_is_named(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="no such inventory file"):
        load_rack(str(tmp_path / "absent.py"))


def test_the_lab_inventory_says_which_command_starts_the_rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(__file__).parents[2] / "inventories" / "lab.py"
    (tmp_path / "inventories").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "inventories" / "lab.py").write_text(source.read_text())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InventoryError, match=r"the virtual rack is down: start it with `rackproof lab up`"):
        load_rack("inventories/lab.py")


@pytest.mark.parametrize(
    "text",
    [
        "gpu = ['../x']\n",
        "gpu = ['a/../../x']\n",
        "gpu = ['gpu-01; id']\n",
        "gpu = ['$(id)']\n",
        "gpu = ['gpu\\n01']\n",
        "gpu = ['-oProxyCommand=id']\n",
        "globals()['a b'] = ['gpu-01']\n",
    ],
)
def test_a_name_that_a_shell_or_a_path_would_read_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InventoryError, match=r"rack\.py: .* is no name of a node or group$"):
        load_rack(write(tmp_path, text))


@pytest.mark.parametrize("name", ["gpu-01.site.example", "192.0.2.7", "@docker/debian:13", "@local", "2001:db8::1"])
def test_hosts_addresses_and_connectors_are_names(tmp_path: Path, name: str) -> None:
    assert [node.name for node in load_rack(write(tmp_path, f"gpu = [{name!r}]\n")).nodes] == [name]


def test_a_module_in_the_working_directory_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Children begin without the working directory on their path: ``json.py`` there is not the standard library's."""
    monkeypatch.setattr(subprocess, "run", cold_run)
    (tmp_path / "json.py").write_text("open('executed', 'w')\n")
    monkeypatch.chdir(tmp_path)
    load_rack(write(tmp_path, GOOD))
    plan_deploys([str(tmp_path / "rack.py")], str(ROOT / "deploys/base.py"))
    assert not (tmp_path / "executed").exists()


WRONG = {
    "ssh_port": ['"22; id"', "10**30", "True", "-1", "70000", "[22]", "2.5", "object()"],
    "ssh_hostname": ['"a b"', '"$(id)"', "5", '"-oProxyCommand=x"', '"a\\nb"'],
    "ssh_user": ['"root; id"', '"-x"', "0x1f", "[]"],
    "ssh_key": ["5", '"a\\x00b"', "b'x'"],
    "ssh_known_hosts_file": ["True", "object()"],
    "ssh_password": ["12345", "['hunter2']"],
    "ssh_allow_agent": ['"no"'],
    "ssh_strict_host_key_checking": ['"sometimes"'],
    "_sudo": ['"no"', "2", "print"],
    "_sudo_user": ['"a b"', "True", '"-x"'],
    "_use_sudo_login": ['"yes"'],
    "_shell_executable": ["['sh']"],
    "fabric_addresses": ['"10.0.0.1/24"', "[1]", '["10.0.0.300/24"]', "{}", "5", "[print]", '["10.0.0.1/24; id"]'],
    "fabric_second_addresses": ['["x"]'],
    "fabric_macs": ['["nic"]', '"aa:bb:cc:dd:ee:ff"'],
    "fabric_paths": ['["$(id)"]'],
    "virtual": ['"maybe"', "[]"],
    "simulated_gpus": ['"maybe"', "print"],
    "command_timeout_s": ['"soon"', "-5", 'float("nan")', 'float("inf")', "True"],
    "reboot_mode": ['"later"'],
    "rollback_keep": ["1.5"],
    "fact_prefetch": ['"no"'],
    "data_drive": ['"/dev/$(id)"'],
    "time_upstreams": ['["a b"]'],
    "nic_ports": ["5"],
    "architecture": ["5"],
}
KINDS = {
    "list": "gpu = [('gpu-01', {{{key!r}: {value}}})]\n",
    "tuple": "gpu = (('gpu-01', {{{key!r}: {value}}}),), {{}}\n",
    "group": "gpu = ['gpu-01'], {{{key!r}: {value}}}\n",
    "function": "from rackproof.inventories import nodes as _nodes\n"
    "gpu = [(name, {{**data, {key!r}: {value}}}) for name, data in _nodes('gpu-01')]\n",
}


@pytest.mark.parametrize("key", WRONG)
def test_a_key_of_another_type_is_refused_by_its_name_in_one_line(tmp_path: Path, key: str) -> None:
    for number, value in enumerate(WRONG[key]):
        kind = list(KINDS)[number % len(KINDS)]
        path = write(tmp_path, KINDS[kind].format(key=key, value=value))
        with pytest.raises(InventoryError) as caught:
            load_rack(path)
        assert str(caught.value).startswith(f"{path}: gpu-01: {key}"), (kind, value)
        assert str(caught.value).isprintable()
        assert not {"12345", "hunter2"} & set(re.findall(r"\w+", str(caught.value).removeprefix(path)))


def test_group_data_is_checked_as_well(tmp_path: Path) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "all.py").write_text("_sudo = 'no'\nssh_port = '22; id'\n")
    with pytest.raises(InventoryError, match=r"gpu-01: (_sudo|ssh_port): "):
        load_rack(write(tmp_path, GOOD))


RIGHT = """
from pathlib import Path
from ipaddress import ip_interface
from rackproof.inventories import secret as _secret
gpu = [
    ("gpu-01", {"ssh_port": 22, "ssh_hostname": "fe80::1%eth0", "ssh_user": "SITE\\\\me", "ssh_key": Path("/k")}),
    ("gpu-02", {"ssh_port": "2222", "ssh_hostname": "192.0.2.7", "ssh_user": "me@site", "_sudo": True}),
    ("gpu-03", {"ssh_port": None, "fabric_addresses": ("10.0.0.3/24",), "ssh_password": "a b"}),
    ("gpu-04", {"command_timeout_s": 30.5, "ssh_paramiko_connect_kwargs": {"x": print}, "site": print, "timeout": "x"}),
]
"""


def test_what_sites_use_is_accepted(tmp_path: Path) -> None:
    rack = load_rack(write(tmp_path, RIGHT))
    assert rack.node("gpu-01").data["ssh_key"] == "/k"
    assert len(rack.nodes) == 4


@pytest.mark.parametrize("key", LOGIN_FILES)
def test_a_login_is_read_from_a_file_and_never_waited_for(tmp_path: Path, key: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    message = error_of(InventoryError, load_rack, write(tmp_path, f"gpu = [('a', {{{key!r}: '{tmp_path}/fifo'}})]"))
    assert message.endswith(f"a: {key}: {tmp_path}/fifo: it is no regular file")
    for accepted in ("/dev/null", "/nowhere/at/all", "~stranger/file"):
        load_rack(write(tmp_path, f"gpu = [('a', {{{key!r}: {accepted!r}}})]"))
