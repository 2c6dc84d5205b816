"""Sources of inventories: nodes and data, and the error of each invalid source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.inventories import Groups, SourceError, from_csv, from_netbox, from_slurm, from_terraform, nodes
from rackproof.inventory import load_rack
from tests.unit.refusals import error_of

pytestmark = pytest.mark.usefixtures("warm_python")

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "inventories" / "data"
CSV = """\
name,role,ssh_hostname,fabric_addresses,note
gpu-01,gpu,192.0.2.1,10.0.0.1/24; 10.0.1.1/24,
# a comment

gpu-02,gpu,192.0.2.2,10.0.0.2/24 10.0.1.2/24,"spare, for now"
"""


@pytest.mark.parametrize(
    ("example", "count"), [("example_csv", 3), ("example_netbox", 3), ("example_slurm", 2), ("example_nodesets", 34)]
)
def test_the_examples_are_inventories(example: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    rack = load_rack(f"inventories/{example}.py")
    assert len(rack.nodes) == count
    assert all(node.data["fabric_addresses"] for node in rack.nodes)


# CSV


def csv_of(tmp_path: Path, text: str, **options: Any) -> Groups:
    (tmp_path / "rack.csv").write_text(text, encoding="utf-8")
    return from_csv(tmp_path / "rack.csv", **options)


def test_every_column_is_data_unless_columns_are_chosen(tmp_path: Path) -> None:
    assert csv_of(tmp_path, CSV)["gpu"] == [
        ("gpu-01", {"ssh_hostname": "192.0.2.1", "fabric_addresses": ["10.0.0.1/24", "10.0.1.1/24"]}),
        ("gpu-02", {"ssh_hostname": "192.0.2.2", "fabric_addresses": ["10.0.0.2/24", "10.0.1.2/24"],
                    "note": "spare, for now"}),
    ]  # fmt: skip
    chosen = csv_of(tmp_path, CSV, columns={"ssh_hostname": "ssh_hostname"}, data={"rack": 7})["gpu"]
    assert chosen[0] == ("gpu-01", {"rack": 7, "ssh_hostname": "192.0.2.1"})


def test_rails_may_be_columns_of_their_own(tmp_path: Path) -> None:
    text = "\ufeffHost\tKind\tr0\tr1\r\ngpu-01\tG\t10.0.0.1/24\t10.0.1.1/24\r\nsw-01\tS\t\t\r\n"
    hosts = csv_of(
        tmp_path,
        text,
        name="Host",
        role="Kind",
        roles={"G": "gpu", "S": None},
        columns={"fabric_addresses": ["r0", "r1"]},
    )
    assert hosts == {"gpu": [("gpu-01", {"fabric_addresses": ["10.0.0.1/24", "10.0.1.1/24"]})]}


@pytest.mark.parametrize(
    ("change", "options", "complaint"),
    [
        (("gpu-02", "gpu-01"), {}, "rack.csv:5: node gpu-01 is already in "),
        (("name,", "host,"), {}, "rack.csv:1: no column 'name' (for name)"),
        (("x", "x"), {"columns": {"fabric_addresses": ["rail0"]}}, "no column 'rail0' (for fabric_addresses)"),
        (("note", "role"), {}, "two columns 'role'"),
        (("gpu-01,gpu,", "gpu-01,gpuu,"), {"roles": {"gpu": "gpu"}}, "gpu-01: unknown role 'gpuu'; did you mean 'gpu'"),
        (("gpu-01,gpu,", "gpu-01,,"), {}, "rack.csv:2: gpu-01 has no role"),
        (("gpu-01,gpu,", "gpu-01,GPU server,"), {}, "role 'GPU server' is not a valid name of a group"),
        (("10.0.0.1/24;", "10.0.0.1;"), {}, "with its prefix length (10.0.0.1/24), actual '10.0.0.1'"),
        (("10.0.0.1/24;", "10.0.0.300/24;"), {}, "actual '10.0.0.300/24'"),
        (("192.0.2.1,", "192.0.2.1 x,"), {}, "ssh_hostname: expected a name or an address, actual '192.0.2.1 x'"),
        (("gpu-01,gpu,", "gpu 01,gpu,"), {}, "expected a node's name, actual 'gpu 01'"),
        (("gpu-01,gpu,", "gpu-01,gpu,x,"), {}, "rack.csv:2: expected 5 cells, actual 6"),
        (('"spare, for now"', '"spare'), {}, "rack.csv:5: unexpected end of data"),
        ((CSV, ""), {}, "rack.csv: the file is empty"),
        ((CSV, "name,role\n"), {}, "rack.csv: no nodes"),
    ],
)  # fmt: skip
def test_a_bad_table_is_named(tmp_path: Path, change: tuple[str, str], options: dict[str, Any], complaint: str) -> None:
    assert complaint in error_of(SourceError, csv_of, tmp_path, CSV.replace(*change), **options)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rack.csv").write_bytes(b"name,role\n\xff\xfe,gpu\n")
    with pytest.raises(SourceError, match="not UTF-8"):
        from_csv(tmp_path / "rack.csv")
    with pytest.raises(SourceError, match=r"none\.csv: cannot be read: No such file"):
        from_csv(tmp_path / "none.csv")


@given(st.lists(st.from_regex(r"[a-z]{1,3}[0-9]{1,3}", fullmatch=True), min_size=1, max_size=9))
def test_every_name_is_read_once_or_refused(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    path = tmp_path_factory.mktemp("csv") / "any.csv"
    path.write_text("name,role\n" + "".join(f"{name},gpu\n" for name in names), encoding="utf-8")
    if len(set(names)) < len(names):
        with pytest.raises(SourceError, match="is already in"):
            from_csv(path)
    else:
        assert [name for name, _ in from_csv(path)["gpu"]] == names


# NetBox


def netbox(tmp_path: Path, spoil: Callable[[dict[str, Any]], None] = lambda parts: None, **options: Any) -> Groups:
    """The example's answers, spoilt, read back."""
    parts = {p: json.loads((DATA / f"netbox-{p}.json").read_text()) for p in ("devices", "interfaces", "ip-addresses")}
    spoil(parts)
    for part, document in parts.items():
        (tmp_path / f"{part}.json").write_text(json.dumps(document))
    given = {
        "roles": {"gpu-server": "gpu", "storage": "storage", "leaf": None},
        "interfaces": tmp_path / "interfaces.json",
        "addresses": tmp_path / "ip-addresses.json",
        "rails": r"rail(\d+)",
        **options,
    }
    return from_netbox(tmp_path / "devices.json", **given)


def test_devices_with_their_rails(tmp_path: Path) -> None:
    hosts = netbox(tmp_path, fields={"data_drive": "scratch_drive"})
    assert hosts["gpu"][0] == (
        "gpu-01",
        {
            "ssh_hostname": "192.0.2.21",
            "fabric_macs": ["b8:3f:d2:00:00:21", "b8:3f:d2:00:01:21"],
            "fabric_addresses": ["198.51.100.21/26", "198.51.100.85/26"],
            "data_drive": "/dev/disk/by-id/nvme-SCRATCH_MODEL_*_1",
        },
    )
    assert [name for name, _ in hosts["gpu"]] == ["gpu-01", "gpu-02"]  # gpu-99 is planned
    assert "data_drive" not in hosts["storage"][0][1]


def test_a_plain_list_and_older_words_are_read_as_well(tmp_path: Path) -> None:
    def older(parts: dict[str, Any]) -> None:
        for part in parts:
            parts[part] = parts[part]["results"]
        for device in parts["devices"]:
            device["device_role"] = device.pop("role")
        for interface in parts["interfaces"]:  # newer, since 4.2
            interface["primary_mac_address"] = {"mac_address": interface.pop("mac_address")}

    assert netbox(tmp_path, older) == netbox(tmp_path)


def _device(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda parts: parts["devices"]["results"][0].update(changes)


def _again(part: str) -> Callable[[dict[str, Any]], None]:
    return lambda parts: parts[part]["results"].append(parts[part]["results"][0])


@pytest.mark.parametrize(
    ("spoil", "options", "complaint"),
    [
        (lambda parts: parts["devices"].update(next="https://x/?offset=50", count=120), {},
         "devices.json: a page with 5 of 120 objects; request all (?limit=0)"),
        (_device(name=None), {}, "object 1 (id 1): the device has no name"),
        (_device(role={"slug": "gpu-servers"}), {}, "unknown role 'gpu-servers'; did you mean 'gpu-server'"),
        (_device(role=None), {}, "gpu-01 has no role"),
        (_again("devices"), {}, "node gpu-01 is already in"),
        (_again("interfaces"), {}, "gpu-01 rail0: rail 0 has b8:3f:d2:00:00:21 and"),
        (_again("ip-addresses"), {}, "gpu-01 rail0: rail 0 has 198.51.100.21/26 and"),
        (lambda parts: parts["interfaces"]["results"][0].update(mac_address=None), {}, "gpu-01 rail0: no MAC address"),
        (lambda parts: parts["interfaces"]["results"][0].update(mac_address="b8:3f"), {},
         "fabric_macs: expected six bytes"),
        (lambda parts: parts["ip-addresses"]["results"][0].update(address="198.51.100.21"), {},
         "with its prefix length"),
        (lambda parts: parts.update(devices={"detail": "Invalid token"}), {}, "expected a list of objects, or a page"),
        (lambda parts: parts.update(devices=["gpu-01"]), {}, "object 1: expected a mapping, actual str"),
        (lambda parts: None, {"rails": "rail("}, "rails='rail(': is no regular expression"),
        (lambda parts: None, {"rails": None}, "rails= is missing"),
        (lambda parts: None, {"rails": "(rail)[0-9]+"}, "rail0: no number of a rail"),
        (lambda parts: None, {"fields": {"data_drive": "drive"}}, "gpu-01: no custom field 'drive' (for data_drive)"),
        (lambda parts: None, {"status": ("retired",)}, "devices.json: no nodes of the roles in roles="),
    ],
)  # fmt: skip
def test_a_bad_answer_of_netbox_is_named(
    tmp_path: Path, spoil: Callable[[dict[str, Any]], None], options: dict[str, Any], complaint: str
) -> None:
    assert complaint in error_of(SourceError, netbox, tmp_path, spoil, **options)


# Slurm

SLURM = (DATA / "slurm-nodes.txt").read_text()


def slurm(tmp_path: Path, text: str, **options: Any) -> Groups:
    (tmp_path / "nodes").write_text(text)
    return from_slurm(tmp_path / "nodes", **options)


def test_nodes_of_slurm_are_one_group_or_those_of_partitions_and_features(tmp_path: Path) -> None:
    both = [("gpu-01", {"ssh_hostname": "192.0.2.21"}), ("gpu-02", {"ssh_hostname": "192.0.2.22"})]
    assert slurm(tmp_path, SLURM) == {"gpu": both}
    assert slurm(tmp_path, SLURM, groups={"debug": "debug", "h200": "gpu"}) == {"debug": both[:1], "gpu": both[1:]}


def test_one_line_a_node_and_json_say_the_same(tmp_path: Path) -> None:
    one_line = "\n".join(" ".join(part.split()) for part in SLURM.strip().split("\n\n")) + "\n"
    assert slurm(tmp_path, one_line) == slurm(tmp_path, SLURM)
    document = {"nodes": [
        {"name": f"gpu-0{n}", "address": f"192.0.2.2{n}", "partitions": ["batch"], "features": ["h200"]} for n in (1, 2)
    ]}  # fmt: skip
    assert slurm(tmp_path, json.dumps(document), groups={"h200": "gpu"}) == slurm(tmp_path, SLURM)


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        (SLURM, {"groups": {"h20": "gpu"}}, "no partition or feature 'h20'; did you mean 'h200'"),
        (SLURM.replace("gpu-02", "gpu-01"), {}, "NodeName=gpu-01: node gpu-01 is already in"),
        (SLURM.replace("192.0.2.21", "a b"), {}, "ssh_hostname: expected a name or an address"),
        ("slurm_load_node error: Unable to contact slurm controller\n", {}, "not the output of scontrol show nodes"),
        ("", {}, "not the output of scontrol show nodes"),
        ('{"errors": []}', {}, "expected the output of scontrol show nodes --json"),
        ('{"nodes": [{}]}', {}, "nodes[1]: no name"),
        ('{"nodes": ', {}, "nodes:1: not JSON"),
    ],
)
def test_a_bad_answer_of_slurm_is_named(tmp_path: Path, text: str, options: dict[str, Any], complaint: str) -> None:
    assert complaint in error_of(SourceError, slurm, tmp_path, text, **options)


# node sets


def test_numbered_nodes_follow_a_rule() -> None:
    hosts = nodes(
        "gpu[01-03,08]", address="10.0.0.{n+100}", fabric=["10.1.0.{n}/24", "10.1.1.{n}/24"], label="r{i:02d}-{name}"
    )
    assert [name for name, _ in hosts] == ["gpu01", "gpu02", "gpu03", "gpu08"]
    assert hosts[3][1] == {
        "ssh_hostname": "10.0.0.108",
        "fabric_addresses": ["10.1.0.8/24", "10.1.1.8/24"],
        "label": "r04-gpu08",
    }


@pytest.mark.parametrize(
    ("nodeset", "options", "complaint"),
    [
        ("gpu[1-", {}, "not a node set"),
        ("", {}, "the node set is empty"),
        ("head", {"address": "10.0.0.{n}"}, "head has no number for {n}; use {i}"),
        ("gpu[1-2]", {"address": "10.0.0.{number}"}, "expected {n}, {i}, {name}"),
        ("gpu[1-300]", {"fabric": ["10.0.0.{n}/24"]}, "gpu256: fabric_addresses: expected an address"),
    ],
)
def test_a_bad_rule_is_named(nodeset: str, options: dict[str, Any], complaint: str) -> None:
    assert complaint in error_of(SourceError, nodes, nodeset, **options)


# Terraform

TERRAFORM: dict[str, Any] = {
    "nodes": {"sensitive": False, "value": {
        "gpu-01": {"role": "gpu", "ssh_hostname": "192.0.2.1", "fabric_addresses": ["10.0.0.1/24"], "zone": None},
    }},
    "region": {"sensitive": False, "value": "here"},
}  # fmt: skip


def terraform(tmp_path: Path, document: Any, **options: Any) -> Groups:
    (tmp_path / "out.json").write_text(json.dumps(document))
    return from_terraform(tmp_path / "out.json", **options)


def test_an_output_of_terraform_is_a_rack(tmp_path: Path) -> None:
    expected = {"gpu": [("gpu-01", {"ssh_hostname": "192.0.2.1", "fabric_addresses": ["10.0.0.1/24"]})]}
    assert terraform(tmp_path, TERRAFORM) == expected
    as_list = {"nodes": {"value": [{"name": "gpu-01", **TERRAFORM["nodes"]["value"]["gpu-01"]}]}}
    assert terraform(tmp_path, as_list) == expected


@pytest.mark.parametrize(
    ("document", "options", "complaint"),
    [
        (TERRAFORM, {"output": "node"}, "no output 'node'; did you mean 'nodes'"),
        (TERRAFORM, {"output": "region"}, "region: expected a list or a mapping of nodes, actual str"),
        (TERRAFORM, {"keys": {"ssh_hostname": "ip"}}, "nodes[1]: no attribute 'ip'"),
        ({"nodes": {"value": ["gpu-01"]}}, {}, "nodes[1]: expected an object, actual str"),
        (["x"], {}, "expected the output of terraform output -json"),
    ],
)
def test_a_bad_output_is_named(tmp_path: Path, document: Any, options: dict[str, Any], complaint: str) -> None:
    assert complaint in error_of(SourceError, terraform, tmp_path, document, **options)
