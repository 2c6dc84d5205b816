"""A rack that a benchmark damaged is not certified, and the step is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rackproof.bench.waiting import STATE
from rackproof.core.evidence import Kind, Record
from rackproof.core.status import Outcome, Status
from rackproof.parse.load import MARK
from rackproof.remote.command import CommandResult
from tests.unit.false_certificates.edited import certificate, chained, without
from tests.unit.false_certificates.racks import World
from tests.unit.load_answers import Machine

pytestmark = pytest.mark.few(3)

READ = "storage/local/read"


def during(world: World, damage: Callable[[Machine], object], node: str = "gpu-01", step: str = READ) -> None:
    world.hooks[step] = lambda: damage(world.computers[node])


def replaced(old: str, new: str) -> Callable[[Machine], object]:
    def damage(machine: Machine) -> None:
        assert any(old in line for line in machine.mounts)
        machine.mounts = [line.replace(old, new) for line in machine.mounts]

    return damage


DAMAGES: dict[str, tuple[str, Callable[[Machine], object], str]] = {
    "drive error": ("kernel", lambda m: m.kernel("I/O error, dev nvme0n1, sector 5 op 0x0:(READ)"), "I/O error, dev"),
    "xid": ("kernel", lambda m: m.kernel("NVRM: Xid (PCI:0000:9b:00): 48, pid=1, DBE"), "Xid (PCI:0000:9b:00): 48"),
    "gpu lost": (
        "kernel",
        lambda m: m.kernel("NVRM: GPU at PCI:0000:9b:00: GPU has fallen off the bus."),
        "fallen off the bus",
    ),
    "link down": ("ports", lambda m: m.count("carrier_down_count", 2), "eth0 carrier_down_count 1 → 2"),
    "crc": ("ports", lambda m: m.count("rx_crc_errors", 9), "eth0 rx_crc_errors 0 → 9"),
    "rdma link": ("ports", lambda m: m.count("link_downed", 1), "rxe0/1 link_downed 0 → 1"),
    "memory": ("memory", lambda m: m.count("ue_count", 1), "mc0 uncorrected 0 → 1"),
    "array": ("drives", lambda m: m.count("degraded", 1), "md127 degraded 0 → 1"),
    "array gone": (
        "drives",
        lambda m: setattr(m, "counters", [line for line in m.counters if "/md127/" not in line]),
        "md127 is gone",
    ),
    "array broken": (
        "drives",
        lambda m: setattr(m, "counters", [line.replace("state:clean", "state:broken") for line in m.counters]),
        "md127 state was active, is broken",
    ),
    "media": ("drives", lambda m: setattr(m, "media_errors", 3), "nvme0 media_errors 0 → 3"),
    "drive warning": ("drives", lambda m: setattr(m, "critical_warning", 8), "nvme0 read-only: warning 0 → 1"),
    "drive gone": ("drives", lambda m: m.drives.clear(), "nvme0 is gone"),
    "aer": (
        "pcie",
        lambda m: m.aer.append("/sys/bus/pci/devices/0000:1a:00.0/aer_dev_nonfatal:CmpltTO 2"),
        "0000:1a:00.0 CmpltTO nonfatal 0 → 2",
    ),
    "device gone": ("pcie", lambda m: setattr(m, "devices", 29), "devices fell from 30 to 29"),
    "hot": (
        "throttling",
        lambda m: m.counters.append("/sys/devices/system/cpu/cpu3/thermal_throttle/core_throttle_count:4"),
        "cpu3 core throttled 0 → 4",
    ),
    "unmounted": ("mounts", lambda m: m.mounts.pop(), "/mnt/nfs-tcp is not mounted any longer"),
    "read-only": ("mounts", replaced("ext4 rw,noatime", "ext4 ro,noatime"), "/mnt/local was /dev/nvme0n1 ext4 rw, is"),
    "mounted over": (
        "mounts",
        lambda m: m.mounts.append("tmpfs /mnt tmpfs rw 0 0"),
        "/mnt/local was /dev/nvme0n1 ext4 rw, is /dev/nvme0n1 ext4 rw below a later mount on /mnt",
    ),
    "other source": ("mounts", replaced("10.77.0.11:", "10.77.0.99:"), "is 10.77.0.99:/srv/nfs nfs4 rw"),
    "clock set": ("clock", lambda m: setattr(m, "ahead_s", 0.6), "the clock was set by +0.600 s"),
    "clock off": ("clock", lambda m: setattr(m, "offset_s", -0.9), "the clock is 0.900 s off"),
    "restart": ("boot", lambda m: m.restart(), "the node restarted during the step: boot id 1f2e3d4c → 1f2e3d4d"),
}


@pytest.mark.few(6)
@pytest.mark.parametrize("name", DAMAGES)
def test_what_the_load_brought_to_light_fails_with_its_step(world: World, name: str) -> None:
    subject, damage, words = DAMAGES[name]
    during(world, damage)
    result = world.certify()
    assert result.exit_code == 1, result.output
    assert world.certificate()["outcome"] == "NOT CERTIFIED"
    verdicts = world.verdicts(f"load.{subject}[{READ}]")
    assert verdicts["gpu-01"]["status"] == "FAIL"
    assert words in verdicts["gpu-01"]["message"]
    assert {v["status"] for node, v in verdicts.items() if node != "gpu-01"} == {"PASS"}
    assert all(v["status"] == "PASS" for v in world.verdicts(f"load.{subject}[storage/nfs/read]").values())
    assert f"load.{subject}" in result.output
    assert READ in result.output


def test_what_a_node_had_before_the_load_is_not_the_loads_doing(world: World) -> None:
    machine = world.computers["gpu-01"]
    machine.kernel("I/O error, dev nvme0n1, sector 5")
    machine.count("carrier_down_count", 7)
    machine.media_errors = 3
    assert world.certify().exit_code == 0


def test_growth_of_counters_without_a_limit_is_shown_and_passes(world: World) -> None:
    during(world, lambda m: m.count("rcvd_seq_err", 19))
    assert world.certify().exit_code == 0
    assert "rxe0/1 rcvd_seq_err +12" in world.verdicts(f"load.ports[{READ}]")["gpu-01"]["message"]


def test_an_unknown_error_of_the_kernel_is_named(world: World) -> None:
    during(world, lambda m: m.kernel("<3>frobnicator 0000:1a:00.0: ring 3 is on fire"))
    assert world.certify().exit_code == 0
    verdict = world.verdicts(f"load.complaints[{READ}]")["gpu-01"]
    assert (verdict["status"], verdict["required"]) == ("FAIL", False)
    assert "ring 3 is on fire" in verdict["message"]


def test_a_node_that_cannot_be_read_after_a_step_is_unmeasured(world: World) -> None:
    during(world, lambda m: setattr(m, "mute", True))
    assert world.certify().exit_code == 2
    assert world.verdicts(f"load.kernel[{READ}]")["gpu-01"]["status"] == "UNMEASURED"


UNKNOWN: dict[str, tuple[str, Callable[[Machine], object], str]] = {
    "mounts": ("mounts", lambda m: m.mounts.append("cat: /proc/self/mounts: Input/output error"), "unreadable"),
    "counter": (
        "ports",
        lambda m: m.counters.append("/sys/class/infiniband/rxe1/ports/1/counters/link_downed:3"),
        "rxe1/1 link_downed was unknown before the step, is 3",
    ),
    "counter lost": (
        "ports",
        lambda m: m.counters.remove("/sys/class/net/eth0/statistics/rx_crc_errors:0"),
        "eth0 rx_crc_errors is unknown after the step, was 0",
    ),
    "chrony": ("clock", lambda m: setattr(m, "clockless", True), "chrony gives no offset after the step"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", UNKNOWN)
def test_what_only_one_state_has_is_unmeasured(world: World, name: str) -> None:
    subject, damage, words = UNKNOWN[name]
    during(world, damage)
    assert world.certify().exit_code == 2
    verdict = world.verdicts(f"load.{subject}[{READ}]")["gpu-01"]
    assert verdict["status"] == "UNMEASURED"
    assert words in verdict["message"]


def test_messages_that_the_kernel_has_overwritten_are_missed(world: World) -> None:
    during(world, lambda m: setattr(m, "messages", [(m.uptime_s, "a"), (m.uptime_s + 1, "b")]))
    assert world.certify().exit_code == 2
    assert "messages of the step are lost" in world.verdicts(f"load.kernel[{READ}]")["gpu-01"]["message"]


def test_what_a_step_broke_stays_when_the_step_is_repeated(world: World) -> None:
    def break_and_lose(machine: Machine) -> None:
        machine.media_errors = 3
        world.dead.add("gpu-02")

    during(world, break_and_lose)
    assert world.certify().exit_code == 1
    world.dead.clear()
    world.steps.clear()
    assert world.certify("--resume", "latest").exit_code == 1
    assert READ in world.steps
    assert "media_errors 0 → 3" in world.verdicts(f"load.drives[{READ}]")["gpu-01"]["message"]


def test_no_result_after_a_step_can_be_removed(world: World) -> None:
    assert world.certify().exit_code == 0
    records, folder = world.records, world.runs[-1]
    results = [r for r in records if r.kind is Kind.CHECK and r.body["check"].startswith(("load.", "bench."))]
    one_each = {r.body["check"]: r for r in results if r.body["node"] == "gpu-01"}
    assert len(one_each) == 11
    for name, gone in one_each.items():
        made = certificate(without(records, gone), folder)
        assert made.outcome is Outcome.INCOMPLETE, name
        id_ = f"{name}[{gone.body['item']}]"
        assert [v.status for v in made.verdicts if (v.id, v.subject) == (id_, "gpu-01")] == [Status.UNMEASURED]


def test_an_edited_result_is_found_in_its_outputs(world: World) -> None:
    during(world, lambda m: setattr(m, "media_errors", 3))
    assert world.certify().exit_code == 1
    records = [
        (r.kind, r.body | {"outcome": "passed", "message": "no change"})
        if r.kind is Kind.CHECK and r.body["check"] == "load.drives"
        else (r.kind, r.body)
        for r in world.records
    ]
    made = certificate(chained(records), world.runs[-1])
    assert made.outcome is Outcome.INCOMPLETE
    (verdict,) = [v for v in made.verdicts if (v.id, v.subject) == (f"load.drives[{READ}]", "gpu-01")]
    assert verdict.status is Status.INVALID
    assert "its outputs give failed: appeared during the step: nvme0 media_errors 0 → 3" in verdict.message


def test_the_states_of_a_healthy_node_prove_nothing_about_another(world: World) -> None:
    """The damaged node's answers and results are exchanged for the healthy one's."""
    for name, machine in world.computers.items():
        machine.boot = f"{world.machines[name]:08x}-0001-4000-8000-000000000000"  # as its identity shows
    during(world, lambda m: setattr(m, "media_errors", 3), node="gpu-02")
    assert world.certify().exit_code == 1
    healthy = [r.body for r in world.records if r.kind is Kind.COMMAND and r.body["node"] == "gpu-01"]
    answers = iter([body for body in healthy if MARK in body["command"]])
    results = {
        (r.body["check"], r.body["item"]): r.body
        for r in world.records
        if r.kind is Kind.CHECK and r.body["node"] == "gpu-01"
    }

    def exchanged(record: Record) -> dict[str, Any]:
        if record.body.get("node") != "gpu-02":
            return record.body
        if record.kind is Kind.COMMAND and MARK in record.body["command"]:
            return next(answers) | {"node": "gpu-02"}
        if record.kind is Kind.CHECK and record.body["check"].startswith("load."):
            return results[record.body["check"], record.body["item"]] | {"node": "gpu-02"}
        return record.body

    made = certificate(chained((r.kind, exchanged(r)) for r in world.records), world.runs[-1])
    assert made.outcome is Outcome.INCOMPLETE
    (verdict,) = [v for v in made.verdicts if (v.id, v.subject) == (f"load.drives[{READ}]", "gpu-02")]
    assert verdict.status is Status.INVALID
    assert "its answer has the boot id of gpu-01" in verdict.message


# starved nodes

NFS = "storage/nfs/read"
GPUS = "gpu-01 gpu-02"


def attempts(world: World, *several: tuple[float, str]) -> None:
    """MB/s of every attempt at a step and the nodes that are starved in it; the last one holds for later attempts."""
    left = list(several)

    def begin() -> None:
        world.rate, starved = left.pop(0) if len(left) > 1 else left[0]
        for node in starved.split():
            world.computers[node].steal += 4000
        world.hooks[NFS] = begin

    world.hooks[NFS] = begin
    world.hooks[READ] = lambda: setattr(world, "rate", 60.0)  # of the other step


def rates(world: World, node: str) -> list[float]:
    """MB/s of all attempts."""
    measured = [r.body for r in world.records if r.kind is Kind.MEASUREMENT and r.body["step"] == NFS]
    return [round(body["samples"][0]) for body in measured if body["members"] == [node]]


@pytest.mark.parametrize(
    ("busy", "cause"),
    [
        (False, "gpu-01 was starved: 10 % of its processors' time or more was stolen"),
        (True, "gpu-01 was starved: others had more threads ready to run"),
    ],
)
def test_a_sample_of_a_starved_node_is_invalid_and_never_fails(world: World, busy: bool, cause: str) -> None:
    attempts(world, (1.0, "" if busy else "gpu-01"))
    world.computers["gpu-01"].running = 20 if busy else 1
    result = world.certify()
    verdict = world.verdicts("nfs.read")["gpu-01"]
    assert verdict["status"] == "INVALID"
    assert cause in verdict["message"]
    assert verdict["hint"].startswith("Remove the cause, then measure again")
    assert rates(world, "gpu-01") == [1, 1, 1]
    assert world.verdicts("nfs.read")["gpu-02"]["status"] == "FAIL"
    assert result.exit_code == 1


def test_a_healthy_rack_beside_a_load_that_ends_is_certified(world: World) -> None:
    attempts(world, (1.0, GPUS), (1.0, GPUS), (60.0, ""))
    assert world.certify().exit_code == 0
    assert rates(world, "gpu-01") == [1, 1, 60]
    (replaced,) = world.verdicts("run.replaced").values()
    assert replaced["status"] == "WARN"
    assert f"step {NFS} (2 numbers of starved machines)" in replaced["message"]
    assert "run.replaced" in world.page()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("several", "statuses", "made"),
    [
        # the first attempt that was not starved counts, whatever a later one would give
        (((1.0, GPUS), (1.0, ""), (60.0, "")), ("FAIL", "FAIL"), 2),
        # also where another node's number is measured again
        (((1.0, "gpu-01"), (60.0, "")), ("PASS", "FAIL"), 2),
        (((60.0, "gpu-01"), (1.0, "")), ("PASS", "PASS"), 1),
        # all are starved: the last one
        (((1.0, GPUS), (1.0, GPUS), (1.0, GPUS), (60.0, "")), ("INVALID", "INVALID"), 3),
        (((1.0, GPUS), (60.0, GPUS), (1.0, GPUS)), ("PASS", "PASS"), 2),
    ],
)
def test_which_attempt_counts(
    world: World, several: Sequence[tuple[float, str]], statuses: tuple[str, str], made: int
) -> None:
    attempts(world, *several)
    world.certify()
    verdicts = world.verdicts("nfs.read")
    assert tuple(verdicts[node]["status"] for node in GPUS.split()) == statuses
    assert len(rates(world, "gpu-01")) == made


def test_a_resume_repeats_what_starved_nodes_spoilt(world: World) -> None:
    attempts(world, (1.0, GPUS), (1.0, GPUS), (1.0, GPUS), (60.0, ""))
    assert world.certify().exit_code == 2
    assert world.certify("--resume", "latest").exit_code == 0
    assert rates(world, "gpu-01") == [1, 1, 1, 60]


def test_a_missing_number_of_a_starved_node_is_measured_again(world: World) -> None:
    attempts(world, (60.0, "gpu-01"))
    lost = world.hooks[NFS]
    world.hooks[NFS] = lambda: (lost(), world.clients.update(rc=1))
    assert world.certify().exit_code == 2
    assert world.steps.count(NFS) == 3


def test_the_load_is_waited_for_and_named(world: World) -> None:
    attempts(world, (1.0, GPUS), (60.0, ""))
    world.computers["sto-01"].running = 20
    result = world.run("certify", "a.py")
    assert f"attempt 2 of 3 at {NFS}" in result.output
    assert "waiting for sto-01: 4.75 threads are ready to run for each processor" in result.output


def test_a_failed_number_cannot_be_called_starved(world: World) -> None:
    attempts(world, (1.0, "gpu-01"), (60.0, ""))
    assert world.certify().exit_code == 1
    edited = [
        (r.kind, r.body | {"conditions": r.body["conditions"] | {"steal_pct": 50.0}})
        if r.kind is Kind.MEASUREMENT and r.body["members"] == ["gpu-02"]
        else (r.kind, r.body)
        for r in world.records
    ]
    made = certificate(chained(edited), world.runs[-1])
    (verdict,) = [v for v in made.verdicts if (v.id, v.subject) == ("nfs.read", "gpu-02")]
    assert verdict.status is Status.INVALID
    assert "condition steal_pct: recorded 50.0, its raw output gives 0.0" in verdict.message


def test_what_breaks_while_it_waits_is_named(world: World) -> None:
    attempts(world, (1.0, GPUS), (60.0, ""))
    asked = world.answer

    def answer(node: str, command: str) -> CommandResult | None:
        if command == STATE and node == "gpu-02":
            world.computers[node].media_errors = 3
        return asked(node, command)

    world.answer = answer  # type: ignore[method-assign]
    assert world.certify().exit_code == 1
    assert "media_errors 0 → 3" in world.verdicts(f"load.drives[{NFS}]")["gpu-02"]["message"]


def test_a_number_that_passes_on_a_starved_node_stays_passed(world: World) -> None:
    attempts(world, (60.0, "gpu-01"))
    assert world.certify().exit_code == 0
    numbers = [r.body for r in world.records if r.kind is Kind.MEASUREMENT and r.body["step"] == NFS]
    (measurement,) = [body for body in numbers if body["members"] == ["gpu-01"]]
    assert measurement["conditions"]["steal_pct"] > 10
    assert measurement["conditions"]["busiest_nodes"]["steal_pct"] == "gpu-01"


# users of the nodes


def test_a_node_in_use_gives_no_number(world: World) -> None:
    world.computers["gpu-01"].jobs.append("4711 slurmstepd: [45.batch]")
    assert world.certify().exit_code == 2
    verdict = world.verdicts("nfs.read")["gpu-01"]
    assert (verdict["status"], verdict["message"]) == (
        "INVALID", "in use before the measurement: gpu-01: Slurm runs 45.batch",
    )  # fmt: skip


def test_a_resume_measures_again_what_was_invalid_and_nothing_that_failed(world: World) -> None:
    world.computers["gpu-01"].jobs.append("4711 slurmstepd: [45.batch]")
    assert world.certify().exit_code == 2
    made = len(world.steps)
    world.computers["gpu-01"].jobs.clear()
    world.rate = 1.0
    assert world.certify("--resume", "latest").exit_code == 1
    assert len(world.steps) == 2 * made
    (replaced,) = world.verdicts("run.replaced").values()
    assert replaced["status"] == "WARN"
    world.rate = 60.0
    assert world.certify("--resume", "latest").exit_code == 1
    assert len(world.steps) == 2 * made


# measuring programs


def test_a_program_that_is_not_what_its_package_installed_fails(world: World) -> None:
    world.computers["gpu-02"].changed.append("??5??????   /usr/bin/fio")
    result = world.certify()
    assert result.exit_code == 1
    verdicts = world.verdicts("bench.programs[fio]")
    assert {node: v["status"] for node, v in verdicts.items()} == {"gpu-01": "PASS", "gpu-02": "FAIL"}
    assert "expected fio as fio installed it, actual changed: /usr/bin/fio" in verdicts["gpu-02"]["message"]


def test_configuration_and_documents_may_differ_from_the_package(world: World) -> None:
    world.computers["gpu-02"].changed += ["??5?????? c /etc/fio.conf", "missing     /usr/share/doc/fio/README"]
    assert world.certify().exit_code == 0


def test_a_packaged_program_that_belongs_to_no_package_is_not_trusted(world: World) -> None:
    world.computers["gpu-02"].unowned.add("fio")
    assert world.certify().exit_code == 2
    message = world.verdicts("bench.programs[fio]")["gpu-02"]["message"]
    assert message == f"/usr/bin/fio belongs to no package; its sha256 is {'0' * 64}"
