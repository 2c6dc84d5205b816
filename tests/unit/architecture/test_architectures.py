from __future__ import annotations

import hashlib
import importlib.util
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from rackproof.architectures import available, load, parse
from rackproof.core.architecture import Architecture, Severity
from rackproof.core.architecture.complaints import keys_at
from rackproof.core.architecture.smoke import with_smoke
from rackproof.core.evidence import Scope
from rackproof.core.metrics import METRICS, NOT_YET
from rackproof.core.rack import Node, Rack
from rackproof.errors import ArchitectureError
from rackproof.validation.checks import checks_in
from tests.unit.refusals import error_of

pytestmark = pytest.mark.few(25)

FOLDER = Path(__file__).parents[3] / "architectures"
TEXT = (FOLDER / "virtual-rack.yaml").read_text()
FIRST_BAR = "pass: {op: ge, value: 20, warn: 40, unit: MB/s}"
SHARE = "of: {metric: link.tcp_bandwidth, where: {rail: 0}, scope: pair, reduce: median}"


complaint = partial(error_of, ArchitectureError, parse, name="a.yaml")
VALIDATORS = sorted((FOLDER.parent / "validators").glob("test_*.py"))


def module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"validators_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "mountpoint: /mnt/nfs-tcp",
            "mountpiont: /mnt/nfs-tcp",
            "storage.nfs-tcp.mountpiont: unknown key; did you mean 'mountpoint'?",
        ),
        ("title: Virtual rack", "titel: Virtual rack", "metadata.titel: unknown key; did you mean 'title'?"),
        ("\ngpu:\n", "\ngpus:\n", "gpus: unknown key; did you mean 'gpu'?"),
        ("class: parallel", "klass: parallel", "storage.cephfs.klass: unknown key; did you mean 'class'?"),
        (
            "pass: {op: ge, value: 20, warn",
            "pass: {op: ge, valeu: 20, warn",
            "criteria[local.read].pass.valeu: unknown key; did you mean 'value'?",
        ),
        ("runs: 2\n", "rnus: 2\n", "profiles.lab.links.rnus: unknown key; did you mean 'runs'?"),
        (
            "limits_memlock: unlimited",
            "limits_memlock: lots",
            "system.limits_memlock: expected 'unlimited' or an integer, actual 'lots'",
        ),
        ('vm.swappiness: "1"', "vm.swappiness: 1", "system.sysctl.vm.swappiness: expected text, actual 1 (quote it)"),
        (
            "kind: soft-roce",
            "kind: softroce",
            "fabric.kind: expected 'soft-roce', 'roce' or 'infiniband', actual 'softroce'",
        ),
        ("max_offset_ms: 100", "max_offset_ms: 0", "system.time.max_offset_ms: expected more than 0.0, actual 0"),
        ("{min: 2}", "{min: .inf}", "roles.gpu.count.min: expected a finite number, actual inf"),
        (FIRST_BAR, "pass: {op: ge, value: .nan, unit: MB/s}", "expected a finite number, actual nan"),
        ("mtu: 9000", "mtu: [9000]", "fabric.mtu: expected an integer, actual a list"),
        ("count: 8", "count: eight", "gpu.count: expected an integer, actual 'eight'"),
    ],
)
def test_wrong_keys_and_types_name_line_key_and_expectation(old: str, new: str, message: str) -> None:
    assert old in TEXT
    changed = TEXT.replace(old, new, 1)
    at = changed.index(new) + len(new) - len(new.lstrip("\n"))
    line = changed.count("\n", 0, at) + 1
    refusal = complaint(changed)
    assert refusal.startswith(f"a.yaml:{line}: ")
    assert message in refusal


@pytest.mark.parametrize(
    ("old", "new", "key", "message"),
    [
        (
            "metric: storage.read_bandwidth",
            "metric: storage.read_bandwith",
            "metric",
            "unknown metric 'storage.read_bandwith'; did you mean 'storage.read_bandwidth'?",
        ),
        ("scope: node", "scope: pair", "scope", "storage.read_bandwidth is measured for node or rack, not for pair"),
        (
            "where: {storage: local}",
            "where: {storge: local}",
            "where.storge",
            "storage.read_bandwidth has no label 'storge'; did you mean 'storage'?",
        ),
        (
            "where: {storage: local}",
            "where: {storage: [local, nsf-tcp]}",
            "where.storage",
            "unknown storage 'nsf-tcp'; did you mean 'nfs-tcp'?",
        ),
        ("unit: MB/s}", "unit: us}", "pass.unit", "MB/s expected or something convertible to it, actual us"),
        ("unit: MB/s}", "unit: 1/s}", "pass.unit", "MB/s expected or something convertible to it, actual 1/s"),
        ("unit: MB/s}", "unit: mb/s}", "pass.unit", "unknown unit 'mb/s'; did you mean 'MB/s' or 'Mb/s'?"),
        (
            "unit: MB/s}",
            "unit: percent}",
            "pass.unit",
            "a percent needs 'of': what is storage.read_bandwidth a share of?",
        ),
        ("unit: MB/s}", f"unit: MB/s, {SHARE}}}", "pass.unit", "a share of another quantity is a percent or a ratio"),
        ("source: emulation", "source: emulaton", "source", "unknown source 'emulaton'; did you mean 'emulation'?"),
        ("scope: node", "scope: node\n    members: gpus", "members", "unknown role 'gpus'; did you mean 'gpu'?"),
        (FIRST_BAR, "pass: {op: range, low: 4, unit: MB/s}", "pass.op", "'range' needs low and high"),
        (FIRST_BAR, "pass: {op: range, low: 4, high: 4, unit: MB/s}", "pass.low", "expected less than high, 4"),
        (FIRST_BAR, "pass: {op: le, unit: MB/s}", "pass.op", "'le' needs a value"),
        (FIRST_BAR, "pass: {op: le, value: 1, low: 2, unit: MB/s}", "pass.low", "belongs to 'range'"),
        (FIRST_BAR, "pass: {op: ge, value: 9, warn: 8, unit: MB/s}", "pass.warn", "expected at or above value, 9"),
        (FIRST_BAR, "pass: {op: eq, value: 9, warn: 9, unit: MB/s}", "pass.warn", "has no meaning with 'eq'"),
        ("scope: node", "scope: node\n    statistic: max", "statistic", "judges the best of several tries"),
        ("scope: node", "scope: node\n    reduce: max", "reduce", "judges only the best member"),
        ("scope: node", "scope: rack\n    reduce: min", "reduce", "scope rack is one number"),
        (
            "scope: node",
            "scope: node\n    reduce: min_over_median",
            "pass.unit",
            "gives a percent or a ratio, not MB/s",
        ),
    ],
)
def test_a_criterion_that_contradicts_itself(old: str, new: str, key: str, message: str) -> None:
    start = TEXT.index("- id: local.read\n")
    changed = TEXT[:start] + TEXT[start:].replace(old, new, 1)
    refusal = complaint(changed)
    assert f": criteria[local.read].{key}: " in refusal
    assert message in refusal
    line = int(refusal.split(":")[1])
    last = key.rsplit(".", 1)[-1]
    assert last in changed.splitlines()[line - 1]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("metric: link.tcp_bandwidth, where", "metric: link.rdma_write_latency, where", "neither is a share"),
        ("scope: pair, reduce: median", "scope: pair, reduce: each", "a rack has no pair of its own"),
        ("scope: pair, reduce: median", "scope: pair, reduce: min_over_median", "nothing to take a share of"),
        ("where: {rail: 0}", "where: {rial: 0}", "has no label 'rial'"),
    ],
)
def test_a_share_of_something_that_cannot_be(old: str, new: str, message: str) -> None:
    start = TEXT.index("- id: nfs-tcp.read\n")
    refusal = complaint(TEXT[:start] + TEXT[start:].replace(old, new, 1))
    assert "criteria[nfs-tcp.read].pass.of." in refusal
    assert message in refusal


def test_a_share_of_itself_cannot_fail() -> None:
    start = TEXT.index("- id: nfs-tcp.read\n")
    old = "of: {metric: link.tcp_bandwidth, where: {rail: 0}, scope: pair, reduce: median}"
    new = "of: {metric: storage.read_bandwidth, where: {storage: nfs-tcp}, scope: rack}"
    refusal = complaint(TEXT[:start] + TEXT[start:].replace(old, new, 1))
    assert "criteria[nfs-tcp.read].pass.of.metric: is the criterion's own quantity" in refusal


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- id: local.write", "- id: local.read", "criteria[local.read].id: 'local.read' is another entry's id"),
        ("{min: 1, max: 1}", "{min: 2, max: 1}", "roles.storage.count.max: 1 is less than min, 2"),
        (
            "server_role: storage\n    max",
            "server_role: store\n    max",
            "system.time.server_role: unknown role 'store'",
        ),
        ("client_roles: [gpu]", "client_roles: [gpu, login]", "client_roles[1]: unknown role 'login'; did you"),
        ("/mnt/nfs-rdma", "/mnt/nfs-tcp", "storage.nfs-rdma.mountpoint: /mnt/nfs-tcp is already storage nfs-tcp's"),
        ("mountpoint: /mnt/local", "mountpoint: mnt/local", "mountpoint: expected text that matches ^(/"),
        ("[ro, soft]", "[ro, hard]", "options_forbidden[1]: 'hard' is set or required as well"),
        ("[vers=4.2, hard", "[vers=4.2, nconnect=8, hard", "options[1]: connections says 4, this option says 8"),
        ("required_checks:\n  all:\n", "required_checks:\n  al:\n", "required_checks.al: unknown role 'al'; did you"),
        ("storages: [local, nfs-tcp, nfs-rdma, cephfs]\n", "storages: [nfs]\n", "storages[0]: unknown storage 'nfs'"),
        ("max_bytes: 1048576", "max_bytes: 1000", "profiles.lab.collectives.max_bytes: smaller than min_bytes"),
    ],
)
def test_names_must_refer_to_something(old: str, new: str, message: str) -> None:
    assert old in TEXT
    refusal = complaint(TEXT.replace(old, new, 1))
    if "did you" not in message:
        assert message in refusal
    else:
        assert message.removesuffix("; did you") in refusal


def test_several_mistakes_report_the_first_and_how_many_more() -> None:
    message = complaint(TEXT.replace("mtu: 9000", "mtu: big").replace("rails: 1", "rails: 0"))
    assert "fabric.rails: expected at least 1, actual 0 (and 1 more)" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.yaml:1: the file is empty"),
        ("# only a comment\n", "a.yaml:1: the file is empty"),
        ("a: 1\nb: {c: 2\n", "a.yaml:3: not YAML: "),
        ("a: 1\n\tb: 2\n", "a.yaml:2: not YAML: found "),
        ("a: 1\nb: \x07\n", "a.yaml:2: not YAML: "),
        ("a: *b\n", "a.yaml:1: not YAML: found undefined alias"),
        ("a: 2026-13-01\n", "a.yaml:1: not YAML: '2026-13-01' is no timestamp"),
        ("? [1, 2]\n: 3\n", "a.yaml:1: not YAML: found unhashable key"),
        ("a: 1\n---\nb: 2\n", "a.yaml:2: not YAML: but found another document"),
        ("a: !!python/object:os.system x\n", "a.yaml:1: not YAML: could not determine a constructor"),
        ("- a\n", "a.yaml:1: expected a mapping, actual a list"),
        ("hello\n", "a.yaml:1: expected a mapping, actual 'hello'"),
        ("a: 1\nb: 2\na: 3\n", "a.yaml:3: a: is in line 1 already"),
        ("x:\n  - id: k\n    y: {z: 1,\n       z: 2}\n", "a.yaml:4: x[0].y.z: is in line 3 already"),
        ("&a [*a]\n", "a.yaml:1: *a refers to itself"),
        ("a: 1\n", "a.yaml:1: a: unknown key; "),
    ],
)
def test_what_is_no_architecture_at_all(text: str, message: str) -> None:
    assert complaint(text).startswith(message)


def test_merged_keys_are_no_repetition_and_keep_their_lines() -> None:
    text = TEXT.replace(
        "  nfs-rdma:\n    class: nfs\n", "  nfs-rdma:\n    <<: &more {min_free_gb: 1}\n    class: nfs\n"
    )
    assert parse(text, "a.yaml").storage["nfs-rdma"].min_free_gb == 0.5  # its own wins
    line = text[: text.index("<<:")].count("\n") + 1
    message = complaint(text.replace("&more {min_free_gb: 1}", "&more {min_fre_gb: 1}"))
    assert message.startswith(f"a.yaml:{line}: storage.nfs-rdma.min_fre_gb: unknown key; did you mean 'min_free_gb'?")


def test_keys_are_known_by_the_names_that_files_use() -> None:
    assert "class" in keys_at(("storage", "x"))
    assert "class_" not in keys_at(("storage", "x"))
    assert {"pass", "where", "max_cv_pct"} <= set(keys_at(("criteria", 0)))
    assert "metric" in keys_at(("criteria", 0, "pass", "of"))
    assert "fio" not in keys_at(("tools",))
    assert keys_at(("system", "sysctl")) == ()


class TestLoading:
    def test_by_id_path_and_text(self) -> None:
        loaded = load("virtual-rack", [FOLDER])
        assert loaded.path == FOLDER / "virtual-rack.yaml"
        assert loaded.text == TEXT
        assert loaded.sha256 == hashlib.sha256(TEXT.encode()).hexdigest()
        assert load(FOLDER / "virtual-rack.yaml") == load(str(FOLDER / "virtual-rack.yaml")) == loaded
        assert with_smoke(parse(loaded.text, "stored")) == loaded.model

    def test_the_kit_s_own_are_found_from_anywhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        assert load("virtual-rack").path == FOLDER / "virtual-rack.yaml"

    def test_the_working_directory_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "architectures").mkdir()
        own = tmp_path / "architectures" / "virtual-rack.yaml"
        own.write_text(TEXT.replace("version: 1.1.0", "version: 9.9.9"))
        monkeypatch.chdir(tmp_path)
        assert load("virtual-rack").model.metadata.version == "9.9.9"
        assert {a.id: a.path for a in available()}["virtual-rack"] == Path("architectures/virtual-rack.yaml")

    def test_unknown_ids_name_the_nearest_or_all(self) -> None:
        with pytest.raises(
            ArchitectureError, match=r"^no reference architecture 'virtual-rak'; did you mean 'virtual-"
        ):
            load("virtual-rak", [FOLDER])
        with pytest.raises(ArchitectureError, match=r"^no reference architecture 'dgx'; known: .*hgx-h100-roce"):
            load("dgx", [FOLDER])
        with pytest.raises(ArchitectureError, match=r"^no reference architecture 'dgx'; none is known$"):
            load("dgx", [])

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(ArchitectureError, match=r"none\.yaml: cannot be read: No such file or directory$"):
            load(tmp_path / "none.yaml")
        with pytest.raises(ArchitectureError, match="cannot be read: Is a directory"):
            load(tmp_path)
        (tmp_path / "latin.yaml").write_bytes(b"a: 1\nb: \xe9\n")
        with pytest.raises(ArchitectureError, match=r"latin\.yaml:2: not UTF-8 text"):
            load(tmp_path / "latin.yaml")

    def test_a_file_named_otherwise_is_not_that_architecture(self, tmp_path: Path) -> None:
        (tmp_path / "other.yaml").write_text(TEXT)
        with pytest.raises(ArchitectureError, match=r"metadata\.id: expected 'other' .* actual 'virtual-rack'"):
            load("other", [tmp_path])
        assert load(tmp_path / "other.yaml").model.metadata.id == "virtual-rack"

    def test_a_broken_file_is_listed_with_its_problem(self, tmp_path: Path) -> None:
        (tmp_path / "broken.yaml").write_text("a: 1\n")
        (tmp_path / "virtual-rack.yaml").write_text(TEXT)
        (tmp_path / "README.md").write_text("not one")
        broken, good = available([tmp_path])
        assert (broken.id, broken.title) == ("broken", "")
        assert "unknown key" in (broken.problem or "")
        assert (good.id, good.problem) == ("virtual-rack", None)
        assert good.title.startswith("Virtual rack")


class TestVirtualRack:
    @pytest.fixture
    def rack(self) -> Architecture:
        return load("virtual-rack", [FOLDER]).model

    def test_a_vanished_benchmark_of_any_storage_is_noticed(self, rack: Architecture) -> None:
        """Every storage that is measured has a required criterion on reads, writes and random reads."""
        judged = {
            (criterion.metric, labels["storage"])
            for criterion in rack.criteria
            if criterion.severity is Severity.REQUIRED
            for _, labels in criterion.variants()
            if "storage" in labels
        }
        measured = {name for profile in rack.profiles.values() for name in profile.storage.storages or rack.storage}
        # Several mounts of what nfs-tcp mounts, from the same server.
        assert set(rack.storage) - measured == {"nfs-paths"}
        for name in measured:
            for metric in ("storage.read_bandwidth", "storage.write_bandwidth", "storage.random_read_iops"):
                assert (metric, name) in judged

    def test_every_metric_is_judged_but_those_that_another_says(self, rack: Architecture) -> None:
        """algbw says the same as busbw, only nccl-tests measures in place, and of two bandwidths their ratio is
        judged, also of small files and shards; wrong values beside reads fail without a criterion; two nodes need no
        groups, and simulated GPUs go to no guest; reads, both directions and all rails at once by RDMA are measured
        where a criterion of a real rack asks; of what no benchmark measures yet, and of its simulated GPUs and their
        memory, nothing can be asked here."""
        measured = {name for name, metric in METRICS.items() if metric.benchmark not in (NOT_YET, "gpu", "ingest")}
        depth = load("virtual-rack-storage", [FOLDER]).model
        assert measured - {criterion.metric for criterion in (*rack.criteria, *depth.criteria)} == {
            "collective.algbw", "collective.busbw_in_place", "collective.rail_busbw", "collective.rail_wrong_values",
            "container.host_read_bandwidth", "container.read_bandwidth",
            "group.faults", "guest.collective_busbw", "guest.collective_wrong_values", "guest.host_collective_busbw",
            "guest.host_collective_wrong_values", "link.rdma_read_latency",
            "link.rdma_read_latency_all_rails", "link.rdma_read_latency_gpu", "link.rdma_read_latency_gpu_all_rails",
            "link.rdma_write_bandwidth_all_rails", "link.rdma_write_bandwidth_both",
            "link.rdma_write_bandwidth_both_all_rails", "link.rdma_write_bandwidth_gpu",
            "link.rdma_write_bandwidth_gpu_all_rails", "link.rdma_write_bandwidth_gpu_both",
            "link.rdma_write_bandwidth_gpu_both_all_rails", "mixed.collectives_wrong_values",
            "storage.shard_read_bandwidth",
        }  # fmt: skip

    @pytest.mark.parametrize("name", ["lab", "full"])
    def test_profiles_measure_what_is_judged(self, rack: Architecture, name: str) -> None:
        profile = rack.profiles[name]
        assert profile.storage is not None
        assert profile.links is not None
        assert profile.collectives is not None
        assert set(profile.storage.jobs) == {"read", "write", "randread"}
        sizes, size = [], profile.collectives.min_bytes
        while size <= profile.collectives.max_bytes:
            sizes.append(str(size))
            size *= profile.collectives.factor
        for criterion in rack.criteria:
            for _, labels in criterion.variants():
                assert labels.get("op", "all_reduce") in profile.collectives.ops
                assert labels.get("bytes", "1024") in sizes
                assert int(labels.get("rail", "0")) < rack.fabric.rails
                if criterion.scope is not Scope.RACK:
                    assert criterion.min_samples <= profile.storage.jobs["read"].runs

    def test_required_checks_are_checks_that_run_on_their_nodes(self, rack: Architecture) -> None:
        nodes = Rack("x", (Node("g1", ("gpu",)), Node("g2", ("gpu",)), Node("s1", ("storage",))))
        declared = {check.id: check for path in VALIDATORS for check, _ in checks_in(module(path))}
        for role, names in rack.required_checks.items():
            for node in nodes.group(role):
                for name in names:
                    assert declared[name].items(rack, node, nodes), f"{name} does not run on {node.name}"

    def test_the_lab_profile_is_short(self, rack: Architecture) -> None:
        storage = rack.profiles["lab"].storage
        assert storage is not None
        running = sum(job.runs * (job.runtime_s + job.ramp_s) for job in storage.jobs.values())
        running *= len(storage.storages or rack.storage)
        assert running <= 60
        for job in storage.jobs.values():
            assert job.file_bytes % job.block_bytes == 0


# The worst figure of each criterion, in its bar's unit: ten certificates of a healthy rack beside six busy programs,
# and 17 runs on a quiet host, where TCP is much faster and Soft-RoCE hardly: shares of TCP are least there.
WORST_OF_HEALTHY_RACKS = {
    "local.read": 841.0,
    "local.write": 289.0,
    "local.randread": 7491.0,
    "local.randread.latency": 2.05,
    "local.fairness": 0.69,
    "nfs-tcp.read": 31.2,
    "nfs-tcp.write": 27.9,
    "nfs-tcp.randread": 161.8,
    "nfs-rdma.read": 28.3,
    "nfs-rdma.write": 13.3,
    "nfs-rdma.randread": 59.5,
    "cephfs.read": 36.1,
    "cephfs.write": 44.4,
    "cephfs.randread": 0.862,
    "shared.fairness": 0.523,
    "nfs-rdma.fairness": 0.341,
    "shared.write.fairness": 0.414,
    "shared.randread.latency": 0.137,
    "container.read": 0.604,
    "link.loss": 0.0,
    "link.round_trip": 0.751,
    "link.tcp": 189.3,
    "link.rdma": 14.1,
    "link.rdma.latency": 14.5,
    "link.tcp.retransmitted": 2.23,
    "link.rdma.retries": 624.0,
    "collective.correct": 0.0,
    "collective.busbw": 7.02,
}


def test_the_bars_of_the_virtual_rack_are_twice_as_far_as_a_healthy_rack_comes() -> None:
    criteria = load("virtual-rack").model.criteria
    assert {c.id for c in criteria} == set(WORST_OF_HEALTHY_RACKS)
    near = []
    for criterion in criteria:
        bar, worst = criterion.pass_, WORST_OF_HEALTHY_RACKS[criterion.id]
        distant = {"ge": worst >= 2 * bar.value, "le": 2 * worst <= bar.value, "eq": worst == bar.value}
        if not distant[bar.op]:
            near.append(f"{criterion.id}: {worst} on a healthy rack, bar {bar.op} {bar.value}")
    assert not near
