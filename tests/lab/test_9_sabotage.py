"""A rack that is sabotaged while it is measured: never CERTIFIED, and the certificate names what happened.

The rack is healthy when `certify` begins. The sabotage comes when a step begins, and is gone before the next test.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from rackproof.core.rack import Rack
from rackproof.remote.fleet import Fleet
from tests.lab.conftest import INVENTORY, ROOT, Command, ask
from tests.lab.running import ENDED_S, Running, on_node, undone

pytestmark = pytest.mark.long

BACK_S = 900
LINKS = "links"
SIX_BUSY = 6


def reduced(path: Path, parts: Sequence[str]) -> Path:
    """The virtual rack's architecture with links, or random reads of some storages, and their criteria."""
    document = yaml.safe_load((ROOT / "architectures" / "virtual-rack.yaml").read_text())
    document["metadata"]["id"] = "virtual-rack-reduced"  # the published file may not be weakened under its own id
    lab = document["profiles"]["lab"]
    storages = [part for part in parts if part != LINKS]
    profile: dict[str, Any] = {}
    if LINKS in parts:
        profile["links"] = {**lab["links"], "runs": 1}
    if storages:
        profile["storage"] = {"storages": storages, "jobs": {"randread": lab["storage"]["jobs"]["randread"]}}
    document["profiles"] = {"lab": profile}
    kept = []
    for criterion in document["criteria"]:
        of_criterion = criterion["where"].get("storage", [])
        judged = [name for name in storages if name == of_criterion or name in of_criterion]
        if judged and criterion["metric"].startswith("storage.random") and "of" not in criterion["pass"]:
            kept.append({**criterion, "where": {**criterion["where"], "storage": judged}})
        if LINKS in parts and criterion["metric"].startswith("link."):
            kept.append(criterion)
    document["criteria"] = kept
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path


@pytest.fixture
def certify(tmp_path: Path, converged: Rack) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(parts: Sequence[str], *arguments: str) -> Running:
        architecture = reduced(tmp_path / "reduced.yaml", parts)
        started.append(Running(tmp_path / "reports", ("--architecture", str(architecture), *arguments)))
        return started[-1]

    yield start
    for run in started:
        run.stop()


def reboot(rack: Rack, node: str) -> None:
    """Restart a node and wait until it answers with another boot id and its mounts are back."""
    with Fleet(rack) as fleet:
        before = ask(fleet[node], "cat /proc/sys/kernel/random/boot_id").text
        fleet[node].run("systemctl reboot", 30)
        fleet[node].forget()
    deadline = time.monotonic() + BACK_S
    while time.monotonic() < deadline:
        time.sleep(5)
        with Fleet(rack) as fleet:
            boot = fleet[node].run("cat /proc/sys/kernel/random/boot_id", 60)
            if boot.ok and boot.text != before:
                ask(fleet[node], "timeout 250 systemctl is-system-running --wait")
                return
    raise AssertionError(f"{node} has not come back")


def blamed(certificate: dict[str, Any]) -> list[dict[str, Any]]:
    """Required verdicts that fail. A busy host may leave numbers UNMEASURED or INVALID, and blames nothing."""
    return [v for v in certificate["verdicts"] if v["required"] and v["status"] == "FAIL"]


def test_a_rack_without_sabotage_is_certified_and_its_cut_evidence_is_not(
    certify: Callable[..., Running], command: Command
) -> None:
    """The rack that the tests below break is whole. Its evidence, cut at ten places, is never CERTIFIED."""
    run = certify(["local", LINKS])
    status = run.ended()
    certificate = run.certificate()
    assert blamed(certificate) == []
    assert (status, certificate["outcome"]) in ((0, "CERTIFIED"), (2, "INCOMPLETE")), run.text

    evidence = run.run / "evidence.jsonl"
    whole = evidence.read_bytes()
    lines = whole.splitlines(keepends=True)
    cuts = [b"".join(lines[: len(lines) * part // 10]) for part in range(1, 10)] + [whole[:-20]]
    for cut in cuts:
        evidence.write_bytes(cut)
        judged = command("rackproof", "judge", str(run.run))
        assert judged.returncode in (2, 3), judged.stdout
        assert "cut" in judged.stdout + judged.stderr or "end" in judged.stdout + judged.stderr
        assert (
            json.loads((run.run / "certificate.json").read_text())["outcome"] != "CERTIFIED" or judged.returncode == 3
        )


@dataclass(frozen=True)
class Sabotage:
    """``inject`` runs on the node when the log of `certify` matches ``when``; ``heal`` undoes it."""

    name: str
    parts: tuple[str, ...]
    when: str
    inject: str
    heal: str
    verdict: str
    """Regular expression over ``id subject: message`` of a verdict that is neither PASS nor WARN."""
    node: str = "gpu-02"


TRIALS = (
    Sabotage(
        "a cgroup limits the drive", ("local",), "step storage/local/randread",
        # The limit of the whole slice holds for every session in it, that of fio's server as well.
        "dev=$(lsblk -dno MAJ:MIN \"$(readlink -f /dev/disk/by-label/rp-local)\" | tr -d ' '); "
        "for g in /sys/fs/cgroup/*.slice; do echo +io >/sys/fs/cgroup/cgroup.subtree_control; "
        'echo "$dev riops=40" >"$g/io.max"; done',
        "dev=$(lsblk -dno MAJ:MIN \"$(readlink -f /dev/disk/by-label/rp-local)\" | tr -d ' '); "
        'for g in /sys/fs/cgroup/*.slice; do echo "$dev riops=max" >"$g/io.max"; done',
        r"local\.randread\S* gpu-02",
    ),
    Sabotage(
        "a bind mount in the mount's place", ("nfs-tcp",), "step storage/nfs-tcp/randread",
        "mkdir -p /var/tmp/elsewhere/rackproof-bench/gpu-02 && mount --bind /var/tmp/elsewhere /mnt/nfs-tcp",
        "umount /mnt/nfs-tcp && mountpoint -q /mnt/nfs-tcp && rm -rf /var/tmp/elsewhere",
        r"nfs-tcp\.randread\S* gpu-02: .*(mount|bind)",
    ),
    Sabotage(
        "the rail's link is down during iperf3", (LINKS,), "step links/rail0/round1/tcp-bandwidth",
        "ip link set fabric0 down", "ip link set fabric0 up",
        r"(link\.tcp|load\.ports)\S* .*gpu-02",
    ),
    Sabotage(
        "20 ms of delay", (LINKS,), "checks passed",
        "modprobe sch_netem && tc qdisc replace dev fabric0 root netem delay 20ms", "tc qdisc del dev fabric0 root",
        r"link\.round_trip\S* .*gpu-02",
    ),
    Sabotage(
        "3 % of loss", (LINKS,), "checks passed",
        "modprobe sch_netem && tc qdisc replace dev fabric0 root netem loss 3%", "tc qdisc del dev fabric0 root",
        r"link\.loss\S* .*gpu-02",
    ),
    Sabotage(
        "a fio that exits with 1", ("local",), "step storage/local/randread",
        "printf '#!/bin/sh\\n/usr/bin/fio \"$@\"\\nexit 1\\n' >/usr/local/bin/fio && chmod 755 /usr/local/bin/fio",
        "rm -f /usr/local/bin/fio",
        r"local\.randread\S* gpu-0[12]",
        node="gpu-01",
    ),
    Sabotage(
        "a fio that runs something else", ("local",), "step storage/local/randread",
        # The job files of the launcher, with another block size, through the page cache, for a second.
        "printf '#!/bin/sh\\nfor f; do [ ! -f \"$f\" ] || sed -i -e s/^bs=.*/bs=64k/ -e s/^direct=1/direct=0/ "
        "-e s/^runtime=.*/runtime=1/ \"$f\"; done\\nexec /usr/bin/fio \"$@\"\\n' >/usr/local/bin/fio "
        "&& chmod 755 /usr/local/bin/fio",
        "rm -f /usr/local/bin/fio",
        r"local\.randread\S* gpu-0[12]",
        node="gpu-01",
    ),
)  # fmt: skip


@pytest.mark.parametrize("trial", TRIALS, ids=[trial.name for trial in TRIALS])
def test_sabotage_of_a_step_is_named(trial: Sabotage, certify: Callable[..., Running], converged: Rack) -> None:
    with undone(converged, trial.node, trial.heal):
        run = certify(trial.parts)
        run.wait_for(re.escape(trial.when))
        on_node(converged, trial.node, trial.inject)
        status = run.ended()
    certificate = run.certificate()
    open_verdicts = [v for v in certificate["verdicts"] if v["status"] not in ("PASS", "WARN")]
    lines = [f"{v['id']} {v['subject']}: {v['message']}" for v in open_verdicts]
    assert certificate["outcome"] in ("NOT CERTIFIED", "INCOMPLETE"), run.text
    assert status == (1 if certificate["outcome"] == "NOT CERTIFIED" else 2)
    assert any(re.match(trial.verdict, line, re.DOTALL) for line in lines), "\n".join([*lines, run.text])
    if trial.node == "gpu-02" and LINKS not in trial.parts:
        assert not [v for v in open_verdicts if v["subject"] == "gpu-01" and v["status"] == "FAIL"], lines


def test_a_kernel_message_and_a_reboot_during_a_step_are_named(
    certify: Callable[..., Running], converged: Rack
) -> None:
    """The reboot also removes the message for the tests that follow."""
    run = certify(["local", LINKS])
    with undone(converged, "gpu-02", "true"):
        run.wait_for("step loss/rail0")
        on_node(converged, "gpu-02", "echo '<3>EXT4-fs error (device vda): ext4_lookup: test' >/dev/kmsg")
        run.wait_for("step links/rail0/round1/rdma-bandwidth")
        reboot(converged, "gpu-02")
        status = run.ended()
    certificate = run.certificate()
    assert (certificate["outcome"], status) == ("NOT CERTIFIED", 1), run.text
    (kernel,) = [v for v in certificate["verdicts"] if v["id"].startswith("load.kernel") and v["status"] == "FAIL"]
    assert kernel["subject"] == "gpu-02"
    assert "EXT4-fs error" in kernel["message"]
    # The node is back when a later step asks it, or it is not: a busy host boots slowly.
    restarts = [v for v in certificate["verdicts"] if v["id"] in ("run.rebooted", "run.lost") and v["status"] != "PASS"]
    assert restarts
    assert all("gpu-02" in restart["subject"] + restart["message"] for restart in restarts)
    again = certify(["local", LINKS])
    again.ended()
    assert blamed(again.certificate()) == []


def test_a_second_run_beside_the_first_is_refused_by_its_name(
    certify: Callable[..., Running], converged: Rack, command: Command
) -> None:
    first = certify(["local", "nfs-tcp", LINKS])
    first.wait_for("step loss/rail0")
    verbs = ("validate", "bench", "certify", "deploy")
    with ThreadPoolExecutor(len(verbs)) as pool:  # one after the other would outlast the first run on a busy host
        answers = list(pool.map(lambda verb: command("rackproof", verb, INVENTORY), verbs))
    for verb, second in zip(verbs, answers, strict=True):
        assert second.returncode == (1 if verb == "deploy" else 3), second.stdout + second.stderr
        assert first.run.name in second.stdout + second.stderr
    assert first.ended() in (0, 2), first.text
    assert blamed(first.certificate()) == []


MOMENTS = (
    r"connect", r"gpu-\[01-02\],storage-01 answer", r"validate", r"checks passed", r"step loss/rail0",
    r"step links/rail0/round1/rdma-bandwidth", r"step links/rail0/round1/tcp-bandwidth",
    r"step storage/local/write", r"step storage/local/randread", r"step storage/nfs-tcp/randread",
)  # fmt: skip
BUSY_PROGRAMS = "pgrep -ax 'fio|iperf3|ib_write_bw|ib_write_lat|mpirun' || true"


def test_a_signal_at_ten_moments_ends_the_run_in_order(certify: Callable[..., Running], converged: Rack) -> None:
    """Every run continues the one before, which was interrupted; the last one ends with a verdict on all."""
    resume: tuple[str, ...] = ()
    parts = ["local", "nfs-tcp", LINKS]
    for number, moment in zip([signal.SIGINT, signal.SIGTERM, signal.SIGHUP] * 4, MOMENTS, strict=False):
        run = certify(parts, *resume)
        before = len(run.log())
        while not re.search(moment, run.log()[before:] + run.text):
            if not run.alive:
                break
            time.sleep(0.2)
        sent = time.monotonic()
        run.signal(number)
        status = run.ended(120)
        assert time.monotonic() - sent < ENDED_S, (moment, run.text)
        if status in (0, 1, 2):  # it had ended by itself
            break
        assert status == 128 + number, (moment, status, run.text)
        assert "continue with" in run.text, (moment, run.text)
        with Fleet(converged) as fleet:
            left = {node.name: ask(fleet[node.name], BUSY_PROGRAMS).text for node in converged.nodes}
        assert not any(left.values()), (moment, left)
        resume = ("--resume", "latest")
    last = certify(parts, *resume)
    last.ended()
    certificate = last.certificate()
    assert blamed(certificate) == [], last.text


@pytest.fixture
def busy() -> Iterator[None]:
    spin = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(spin) for _ in range(SIX_BUSY)]
    yield
    for program in programs:
        program.kill()
        program.wait()


def test_ten_certificates_of_a_healthy_rack_beside_six_busy_programs_blame_nothing(
    busy: None, converged: Rack, tmp_path: Path, command: Command
) -> None:
    outcomes = []
    for attempt in range(10):
        output = tmp_path / str(attempt)
        result = command("rackproof", "certify", INVENTORY, "--no-deploy", "--output", str(output), timeout=3600)
        (document,) = output.glob("*/certificate.json")
        certificate = json.loads(document.read_text())
        assert blamed(certificate) == [], result.stdout
        outcomes.append(certificate["outcome"])
    print(outcomes)
    assert set(outcomes) <= {"CERTIFIED", "INCOMPLETE"}
