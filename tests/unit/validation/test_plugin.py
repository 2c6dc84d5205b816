"""``pytest validators/`` as an operator starts it: three outcomes, four exit statuses, words instead of tracebacks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rackproof.core.evidence import CheckOutcome, CheckResult
from rackproof.core.rack import Node
from rackproof.remote.command import CommandResult
from rackproof.remote.recording import Recording, by_command

pytestmark = pytest.mark.few(10)

CHECKS = """\
import warnings

import pytest
from rackproof.parse import ParseError
from rackproof.validation import Unmeasured, check, expect, read

def declared(id, **more):
    return check(id, protects="Something breaks.", hint="Mend it.", reads="system", **more)

@declared("t.passes", tags=["zoo"])
def test_passes(host):
    warnings.warn("of no interest", DeprecationWarning)
    assert host.check_output("uname -r") == "6.12"

@declared("t.expects", each=lambda arch, node, rack: ["net.core.rmem_max", "b"])
def test_expects(host, item):
    expect(read(host, "uname -r").strip(), "6.12" if item == "b" else "7.0", "kernel")

@declared("t.plain", roles=("storage",))
def test_plain(host):
    assert host.run("uname -r").stdout == "7.0", "expected 7.0, actual something else"

@declared("t.advisory", roles=("storage",), required=False)
def test_advisory(host):
    raise AssertionError("expected a gift, actual none")

@declared("t.unmeasured", roles=("storage",))
def test_unmeasured(host):
    raise Unmeasured("no answer")

@declared("t.parse", roles=("storage",))
def test_parse(host):
    raise ParseError("tool", "garbled")

@declared("t.bug", roles=("storage",))
def test_bug(host):
    {}["key"]

@declared("t.skipped", roles=("storage",))
def test_skipped(host):
    pytest.skip("not today")

@declared("t.hangs", roles=("storage",))
def test_hangs(host):
    read(host, "df")

@declared("t.missing_tool", roles=("storage",))
def test_missing_tool(host):
    host.run_test("nvidia-smi")

@declared("t.not_recorded", roles=("storage",))
def test_not_recorded(host):
    read(host, "date")

@declared("t.reads_nothing", roles=("storage",))
def test_reads_nothing(node, arch, rack):
    assert node.name == "storage-01"
    assert rack.node("gpu-01").data == {"virtual": True}

@declared("t.nowhere", roles=("login",))
def test_nowhere(host):
    raise RuntimeError
"""
GOOD = """\
from rackproof.validation import check, expect, read

@check("t.kernel", protects="Something breaks.", hint="Mend it.", reads="system")
def test_kernel(host):
    expect(read(host, "uname -r").strip(), "6.12")
"""


# One process runs all sessions, one after the other: starting it takes longer than any of them.
DRIVER = """\
import contextlib, io, json, os, sys
import pytest
answers = []
for name, arguments in json.load(sys.stdin):
    os.chdir(name)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        status = int(pytest.main(["--import-mode=importlib", "validators", *arguments]))
    answers.append((status, out.getvalue()))
    os.chdir("..")
print(json.dumps(answers))
"""
Cases = dict[str, tuple[str, list[str]]]
Ran = tuple[Path, dict[str, tuple[int, str]]]


def prepare(folder: Path, checks: str) -> None:
    """Validators and recordings of three nodes."""
    validators, recordings = folder / "validators", folder / "recordings"
    validators.mkdir(parents=True)
    recordings.mkdir()
    (validators / "conftest.py").write_text('pytest_plugins = ["rackproof.validation.plugin"]\n')
    # A name of its own: Python keeps modules by name, and all sessions run in one process.
    (validators / f"test_{folder.name.replace('-', '_')}.py").write_text(checks)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\naddopts = -ra --strict-markers\n")
    for name, group in (("gpu-01", "gpu"), ("gpu-02", "gpu"), ("storage-01", "storage")):
        results = [
            CommandResult(name, "uname -r", 0, b"6.12\n", elapsed_s=0.25),
            CommandResult(name, "df", None, elapsed_s=20.1, timeout_s=20, error="not finished within 20 s"),
            CommandResult(name, "nvidia-smi", 127, b"", b"sh: 1: nvidia-smi: not found\n"),
        ]
        recording = Recording(Node(name, (group,), {"virtual": True}), by_command(results))
        (recordings / f"{name}.json").write_text(recording.to_json())


def start(arguments: list[str], folder: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, input=stdin, capture_output=True, text=True, timeout=120, check=False
    )


ARCH = "--architecture=virtual-rack"
FROM = "--from=recordings"
INVENTORY = """\
gpu = [("gpu-01", {"architecture": "nowhere", "ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_user": "root"})]
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Ran:
    """Exit status and output of the sessions below that the selected tests ask for."""
    base = tmp_path_factory.mktemp("sessions")
    asked = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    sessions = {name: SESSIONS[name] for name in SESSIONS if name in asked or name in ("all", "junit", "good")}
    for name, (checks, _) in sessions.items():
        prepare(base / name, checks)
        (base / name / "inv.py").write_text(INVENTORY)
        (base / name / "bad.py").write_text("gpu = [oops]\n")
    done = start(["-c", DRIVER], base, json.dumps([(name, arguments) for name, (_, arguments) in sessions.items()]))
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    return base, dict(zip(sessions, map(tuple, answers), strict=True))


def results_of(folder: Path, name: str = "out.jsonl") -> list[CheckResult]:
    return [CheckResult.model_validate(json.loads(line)) for line in (folder / name).read_text().splitlines()]


def test_every_end_of_a_check_has_its_outcome(ran: Ran) -> None:
    status, printed = ran[1]["all"]
    results = results_of(ran[0] / "all")
    assert status == 1
    by_check = {(r.node, r.check, r.item): r for r in results}
    assert [r.node for r in results] == sorted(r.node for r in results)  # node by node
    assert by_check["gpu-01", "t.passes", ""].outcome is CheckOutcome.PASSED
    assert by_check["gpu-01", "t.passes", ""].elapsed_s == 0.25
    assert len(by_check["gpu-01", "t.passes", ""].raw) == 1
    assert by_check["gpu-02", "t.expects", "b"].outcome is CheckOutcome.PASSED
    failed = by_check["gpu-02", "t.expects", "net.core.rmem_max"]
    assert (failed.outcome, failed.message) == (CheckOutcome.FAILED, "kernel: expected 7.0, actual 6.12")
    assert by_check["storage-01", "t.plain", ""].message == "expected 7.0, actual something else"
    assert not by_check["storage-01", "t.advisory", ""].required
    reasons = {r.check: r.message for r in results if r.outcome is CheckOutcome.UNMEASURED}
    assert reasons == {
        "t.unmeasured": "no answer",
        "t.parse": "tool: garbled",
        "t.bug": "KeyError: 'key'",
        "t.skipped": "skipped: not today",
        "t.hangs": "df: not finished within 20 s",
        "t.missing_tool": "nvidia-smi is not installed (exit status 127)",
        "t.not_recorded": "not in the recording: date",
        "t.reads_nothing": "the check read nothing",
    }
    assert not any(r.check == "t.nowhere" for r in results)
    assert "test_expects[gpu-01-net.core.rmem_max] FAILED" in printed
    assert "test_hangs[storage-01] UNMEASURED" in printed
    assert "FAIL gpu-[01-02],storage-01: t.expects[net.core.rmem_max]: kernel: expected 7.0, actual 6.12" in printed
    assert (
        "FAIL storage-01: t.advisory (advisory): expected a gift, actual none\n  Something breaks.\n  Mend it."
        in printed
    )
    assert "UNMEASURED storage-01: t.parse: tool: garbled" in printed
    assert "Traceback" not in printed
    assert "def test_" not in printed


# name: checks, arguments, exit status, words that must be printed
ENDS: dict[str, tuple[str, list[str], int, str]] = {
    "good": (GOOD, [ARCH, FROM, "--record=kept"], 0, "3 nodes: 3 passed"),
    "limit": (GOOD, [ARCH, FROM, "--limit=gpu-[01-02]"], 0, "2 nodes: 2 passed"),
    "group": (GOOD, [ARCH, FROM, "--limit=storage"], 0, "1 node: 1 passed"),
    "tags": (CHECKS, [ARCH, FROM, "--tags=t,zoo", "-k", "t.passes"], 0, "limited to tags t, zoo, -k 't.passes': "),
    "tags-of-none": (GOOD, [ARCH, FROM, "--tags=t, storag"], 3, "--tags storag: no check has that tag; known: t"),
    "tags-left": (CHECKS, [ARCH, FROM, "--tags=zoo"], 0, "3 nodes: 3 passed"),
    "no-expression": (GOOD, [ARCH, FROM, "-k", "a and"], 3, "Exit: -k 'a and': expected "),
    "check-id": (CHECKS, [ARCH, FROM, "-k", "t.passes and gpu-02"], 0, "1 node: 1 passed"),
    "junit": (CHECKS, [ARCH, FROM, "--rackproof-junit=x.xml", "--limit=storage"], 1, "1 node: "),
    "junit-nowhere": (GOOD, [ARCH, FROM, "--rackproof-junit=no/where.xml"], 3, "no/where.xml: cannot be written"),
    "failed": (GOOD.replace("6.12", "7"), [ARCH, FROM], 1, "3 failed"),
    "incomplete": (GOOD.replace("uname -r", "date"), [ARCH, FROM], 2, "3 unmeasured"),
    "nothing": (GOOD, [ARCH, FROM, "-k", "zzz"], 2, "nothing was checked"),
    "traceback": (CHECKS, [ARCH, FROM, "--tb=short", "-k", "bug"], 2, '{}["key"]'),
    "other-node": (GOOD, [ARCH, FROM, "--limit=gpu-09"], 3, "recordings: 'gpu-09' matches no node; the rack has"),
    "no-set": (GOOD, [ARCH, FROM, "--limit=gpu-["], 3, "Exit: recordings: 'gpu-[' is no node set"),
    "limit-twice": (GOOD, [ARCH, FROM, "--limit=gpu!gpu-02", "--limit=storage"], 0, "limited to gpu!gpu-02,storage"),
    "no-arch": (GOOD, ["--architecture=none", FROM], 3, "Exit: no reference architecture 'none'"),
    "no-arch-said": (GOOD, [FROM], 3, "Exit: recordings names no architecture: set `architecture`"),
    "arch-of-data": (GOOD, ["--inventory=inv.py"], 3, "Exit: no reference architecture 'nowhere'"),
    "no-file": (GOOD, [ARCH, FROM, "--rackproof-results=no/where"], 3, "Exit: no/where: cannot be written"),
    "no-check": ("def test_x(host): pass", [ARCH, FROM], 3, "test_x is not a check: it lacks @check"),
    "no-module": ("import no_such_module", [ARCH, FROM], 3, "No module named 'no_such_module'"),
    "no-such-gift": (GOOD.replace("host)", "host, tmp_path)", 1), [ARCH, FROM], 3, "unknown argument tmp_path"),
    "collect": (GOOD, [ARCH, FROM, "--collect-only", "-q"], 0, "test_kernel[storage-01]"),
    "no-recordings": (GOOD, ["--from=nowhere"], 3, "Exit: nowhere: the folder has no recordings (*.json)\n"),
    "no-inventory": (GOOD, ["--inventory=none.py"], 3, "Exit: none.py: no such inventory file"),
    "bad-inventory": (GOOD, ["--inventory=bad.py"], 3, "Exit: bad.py: line 1: NameError: name 'oops' is not defined\n"),
    "nothing-given": (GOOD, [ARCH], 3, "Exit: no inventory given: --inventory inventories/lab.py\n"),
    "unreachable": (GOOD, [ARCH, "--inventory=inv.py"], 2, "UNMEASURED gpu-01: t.kernel: "),
}  # fmt: skip
SESSIONS: Cases = {
    "all": (CHECKS, [ARCH, FROM, "--rackproof-results=out.jsonl", "-v"]),
    **{name: (checks, arguments) for name, (checks, arguments, _, _) in ENDS.items()},
}


@pytest.mark.parametrize("name", ENDS)
def test_the_exit_status_says_what_came_out(ran: Ran, name: str) -> None:
    _, _, status, words = ENDS[name]
    actual, printed = ran[1][name]
    assert words in printed
    assert actual == status
    assert "INTERNALERROR" not in printed
    if words.startswith("Exit: "):
        assert printed.strip().count("\n") == 0


def test_a_build_server_gets_a_case_for_each_node_check_and_item(ran: Ran) -> None:
    root = ElementTree.parse(ran[0] / "junit" / "x.xml").getroot()  # noqa: S314
    cases = {case.get("name"): case for case in root.iter("testcase")}
    assert {case.get("classname") for case in cases.values()} == {"storage-01"}
    assert str(len(cases)) == root.get("tests")
    assert len(cases["t.passes"]) == 0
    failure = cases["t.expects[net.core.rmem_max]"].find("failure")
    assert failure is not None
    assert failure.get("message") == "kernel: expected 7.0, actual 6.12"
    error = cases["t.hangs"].find("error")
    assert error is not None
    assert error.get("message") == "df: not finished within 20 s"
    assert next(root.iter("property")).get("name") == "rack"
    assert "limited to storage" in {entry.get("value") for entry in root.iter("property")}


def test_what_was_read_can_be_kept(ran: Ran) -> None:
    folder = ran[0] / "good" / "kept"
    assert sorted(path.name for path in folder.iterdir()) == ["gpu-01.json", "gpu-02.json", "storage-01.json"]
    kept = Recording.from_json((folder / "gpu-01.json").read_text(), "kept")
    assert list(kept.results) == ["uname -r"]


EMBEDDED = """\
import sys
from pathlib import Path
from rackproof.architectures import load
from rackproof.core.rack import Node, Rack
from rackproof.errors import EvidenceWriteError, RackproofError
from rackproof.remote.command import CommandResult
from rackproof.evidence.session import Session
from rackproof.evidence.store import EvidenceStore, read_records
from rackproof.validation.run import run_validators
from rackproof.validation.selection import EVERYTHING, Selection

PART = Selection("gpu-03", frozenset(["gpu-03"]), frozenset(["t"]), "t.kernel")

class Connection:
    def __init__(self, node): self.node = node
    def run(self, command, timeout_s, stdin=None):
        if self.node.name == "gpu-02":
            return CommandResult("gpu-02", command, None, timeout_s=timeout_s, error="no connection within 20 s")
        if stdin: return CommandResult(self.node.name, command, 1, b"", b"no mktemp", 0.1, timeout_s)
        return CommandResult(self.node.name, command, 0, b"6.12\\n", b"", 0.1, timeout_s)

class Fleet(dict):
    def each(self, names, action, what=''): return {name: action(self[name]) for name in names}

rack = Rack("inv.py", tuple(Node(f"gpu-{k:02d}", ("gpu",)) for k in (1, 2, 3)))
fleet = Fleet({node.name: Connection(node) for node in rack.nodes})
mode = sys.argv[1]
with EvidenceStore(Path("run")) as store:
    session = Session(rack, load("virtual-rack").model, fleet, store)
    def show(result):
        print("show", result.node, result.outcome.value, result.message)
        if mode == "interrupt": raise KeyboardInterrupt
        if mode == "full": raise EvidenceWriteError("disk is full")
    try:
        selection = PART if mode == "limit" else EVERYTHING
        def plan(checks): print("planned", *sorted(node for _, _, node in checks.cases()))
        results = run_validators(session, show, plan, selection=selection, folder=Path.cwd() / "validators")
        print("results", len(results))
    except (RackproofError, KeyboardInterrupt) as error:
        print("raised", type(error).__name__, error)
for record in read_records(Path("run")):
    print(record.kind.value, record.body["node"], record.body["command"], record.body["rc"])
"""


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("mode", "checks", "lines"),
    [
        (
            "plain",
            GOOD,
            [
                "planned gpu-01 gpu-02 gpu-03",
                "show gpu-01 passed ",
                "show gpu-02 unmeasured no connection within 20 s",
                "show gpu-03 passed ",
                "results 3",
                "command gpu-02 sh -s None",
                "command gpu-01 uname -r 0",
                "command gpu-03 uname -r 0",
            ]
        ),
        ("limit", GOOD, ["planned gpu-03", "show gpu-03 passed ", "results 1", "command gpu-03 uname -r 0"]),
        ("full", GOOD, ["planned gpu-01 gpu-02 gpu-03", "show gpu-01 passed ",
                        "raised EvidenceWriteError disk is full", "command gpu-02 sh -s None",
                        "command gpu-01 uname -r 0"]),
        ("interrupt", GOOD, ["planned gpu-01 gpu-02 gpu-03", "show gpu-01 passed ",
                        "raised KeyboardInterrupt ", "command gpu-02 sh -s None",
                             "command gpu-01 uname -r 0"]),
        ("plain", "import nothing_there", None),
    ],
)  # fmt: skip
def test_the_kit_runs_validators_on_its_own_connections(
    tmp_path: Path, mode: str, checks: str, lines: list[str] | None
) -> None:
    prepare(tmp_path, checks)
    done = start(["-c", EMBEDDED, mode], tmp_path)
    if lines is None:
        assert "raised RunError" in done.stdout
        assert "No module named 'nothing_there'" in done.stdout
        return
    assert done.stdout.splitlines() == lines
    assert done.stderr == ""
