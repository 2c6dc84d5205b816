"""A judged run of a small virtual rack, invented figure by figure, with something of everything in it.

Two GPU nodes and a storage node; local, NFS over TCP and over RDMA, CephFS; one pair; three collectives. One bandwidth
fails, one is too noisy, one benchmark has no number, one node lost its time server, one setting is wrong.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from statistics import mean, median, stdev
from typing import Any

from rackproof.core.architecture import Architecture
from rackproof.core.evidence import (
    CheckOutcome,
    CheckResult,
    CommandRecord,
    DeployRecord,
    Measurement,
    NodeChanges,
    NodeInfo,
    RunInfo,
    Scope,
    subject_of,
)
from rackproof.core.status import Status, outcome_of
from rackproof.core.verdict import Judgement, Verdict
from rackproof.report.certificate import Certificate, StageTime, build_certificate
from tests.unit.judging import info_of_nodes

GPUS = ("gpu-01", "gpu-02")
NODES = ("storage-01", *GPUS)
HEAD = "9f4c" + hashlib.sha256(b"head").hexdigest()[4:]


class Raw(dict[str, bytes]):
    """Outputs by sha256, and the commands that gave them."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[CommandRecord] = []

    def add(self, node: str, command: str, stdout: bytes | str, rc: int | None = 0, stderr: bytes = b"") -> str:
        out = stdout.encode() if isinstance(stdout, str) else stdout
        names = [hashlib.sha256(data).hexdigest() for data in (out, stderr)]
        self.update(zip(names, (out, stderr), strict=True))
        self.commands.append(
            CommandRecord(
                node=node,
                command=command,
                rc=rc,
                stdout=names[0],
                stderr=names[1],
                stdout_bytes=len(out),
                stderr_bytes=len(stderr),
                elapsed_s=0.113,
                timeout_s=30,
                error=None if rc is not None else "no answer within 30 s",
            )
        )
        return names[0]


def architecture() -> Architecture:
    def storage(class_: str, fstype: str, mountpoint: str, transport: str | None = None) -> dict[str, Any]:
        common = {"mountpoint": mountpoint, "transport": transport, "source": "/srv/export"}
        return {"class": class_, "fstype": fstype, **common}

    return Architecture.model_validate(
        {
            "apiVersion": "refarch/v1",
            "metadata": {
                "id": "virtual-rack",
                "version": "1.0",
                "title": "Virtual rack with NFS and CephFS",
                "scope": "A rack of virtual machines carries every storage class, RDMA in software and MPI; "
                "they say nothing about hardware.",
                "sources": {
                    "kit": {"doc": "Proposed by the kit for emulated racks", "status": "proposed"},
                    "nfs-man": {"doc": "nfs(5), mount options of NFS version 4", "status": "verified"},
                    "vendor": {"doc": "Storage vendor's sizing guide, table 3", "status": "unverified"},
                },
            },
            "roles": {"gpu": {"count": {"min": 2}}, "storage": {"count": {"min": 1, "max": 1}}},
            "system": {"time": {"max_offset_ms": 50}},
            "fabric": {"kind": "soft-roce", "mtu": 9000},
            "storage": {
                "scratch": storage("local", "ext4", "/mnt/scratch"),
                "nfs-tcp": storage("nfs", "nfs4", "/mnt/nfs-tcp", "tcp"),
                "nfs-rdma": storage("nfs", "nfs4", "/mnt/nfs-rdma", "rdma"),
                "cephfs": storage("parallel", "ceph", "/mnt/cephfs"),
            },
            "tools": {"packages": ["fio"], "programs": ["fio"]},
            "profiles": {"lab": {}},
            "criteria": [],
        }
    )


def run_info(nodes: Iterable[NodeInfo] | None = None) -> RunInfo:
    return info_of_nodes(
        nodes
        or (
            NodeInfo(name="storage-01", groups=("storage",), virtual=True),
            *(NodeInfo(name=n, groups=("gpu",), virtual=True, simulated_gpus=True) for n in GPUS),
        ),
        run="2026-11-21T100405Z-lab",
        started="2026-11-21T10:04:05Z",
        rackproof="0.1.0",
        inventory="inventories/lab.py",
        architecture="virtual-rack",
        architecture_sha256=hashlib.sha256(b"architecture").hexdigest(),
        controller={"python": "3.11.2", "pyinfra": "3.10.0", "openssh": "9.2p1"},
    )


# ---- checks ---------------------------------------------------------------------------------------------------------

CHECKS = (
    # id, items, protects, hint, reads, command
    ("base.sysctl", ("net.core.rmem_max", "net.core.wmem_max", "vm.swappiness"),
     "TCP buffers that are too small cap one NFS stream far below line rate",
     "Run the deploy again; if it comes back, look for another file under /etc/sysctl.d",
     "system.sysctl", "sysctl -n {item}"),
    ("base.time_offset", ("",),
     "Logs of several nodes cannot be put in order, Ceph refuses monitors",
     "chronyc sources -v; is UDP 123 open between the nodes?",
     "system.time.max_offset_ms", "chronyc -c tracking"),
    ("fabric.mtu", ("",),
     "One port at 1500 stalls large messages of every collective that it takes part in",
     "ip link show fabric0; does the switch port agree?",
     "fabric.mtu", "cat /sys/class/net/fabric0/mtu"),
    ("fabric.rdma_active", ("",),
     "NFS over RDMA falls back to TCP or does not mount",
     "rdma link show; is the rdma_rxe module loaded?",
     "fabric.kind", "rdma -j link show"),
    ("storage.mounted", ("scratch", "nfs-tcp", "nfs-rdma", "cephfs"),
     "Jobs read from the wrong place, or write to the root disk until it is full",
     "findmnt {item}; systemctl status of the mount unit",
     "storage", "findmnt -J {item}"),
    ("gpu.count", ("",),
     "A job that asks for eight GPUs waits forever",
     "nvidia-smi -L; dmesg | grep -i nvrm",
     "gpu.count", "nvidia-smi -L"),
    ("tools.present", ("fio", "ib_write_bw"),
     "The next acceptance test has no number",
     "Install the package that the architecture names",
     "tools.programs", "command -v {item}"),
)  # fmt: skip


def check_results(raw: Raw) -> list[CheckResult]:
    results = []
    for check, items, protects, hint, reads, command in CHECKS:
        for node in NODES:
            if (check.startswith(("gpu", "storage"))) and node not in GPUS:
                continue
            for item in items:
                text = command.format(item=item)
                outcome, message = CheckOutcome.PASSED, ""
                stdout, rc, stderr = f"{check} {item} as declared on {node}\n", 0, b""
                if (check, node, item) == ("base.sysctl", "gpu-02", "vm.swappiness"):
                    outcome, message, stdout = CheckOutcome.FAILED, "expected 1 actual 60", "60\n"
                if (check, node) == ("base.time_offset", "gpu-02"):
                    outcome, message = CheckOutcome.UNMEASURED, "chronyc: 506 Cannot talk to daemon"
                    stdout, rc, stderr = "", 1, b"\x1b[31m506 Cannot talk to daemon\x1b[0m\n"
                if check == "gpu.count":
                    stdout = "".join(f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-{i:08x})\n" for i in range(8))
                sha = raw.add(node, text, stdout, rc, stderr)
                results.append(
                    CheckResult(
                        check=check,
                        node=node,
                        item=item,
                        outcome=outcome,
                        protects=protects,
                        hint=hint.format(item=item),
                        message=message,
                        reads=reads,
                        elapsed_s=0.004,
                        raw=(sha, hashlib.sha256(stderr).hexdigest()) if stderr else (sha,),
                        required=check != "tools.present",
                    )
                )
    return results


_OF_CHECK = {
    CheckOutcome.PASSED: Status.PASS,
    CheckOutcome.FAILED: Status.FAIL,
    CheckOutcome.UNMEASURED: Status.UNMEASURED,
}


def check_verdicts(results: Iterable[CheckResult]) -> list[Verdict]:
    return [
        Verdict(
            id=f"{r.check}[{r.item}]" if r.item else r.check,
            kind="check",
            title=f"{r.check}: {r.item}" if r.item else r.check,
            subject=r.node,
            status=_OF_CHECK[r.outcome],
            required=r.required,
            message=r.message,
            source=r.reads,
            reason=r.protects,
            hint=r.hint,
            raw=r.raw,
            simulated=r.check.startswith("gpu."),
        )
        for r in results
    ]


# ---- measurements ---------------------------------------------------------------------------------------------------

STORAGE_SAMPLES = {
    # read MB/s, write MB/s, random reads a second, latency in µs; first client, second client
    "scratch": ((412.4, 396.8), (151.2, 148.9), (5212.0, 5108.0), (190.2, 194.7)),
    "nfs-tcp": ((38.21, 36.9), (21.73, 20.95), (912.4, 896.1), (1093.0, 1112.0)),
    "nfs-rdma": ((19.86, 8.12), (11.4, 11.1), (641.0, 655.2), (1555.0, 1521.0)),
    "cephfs": ((61.7, 59.3), (12.6, 12.9), (388.5, 401.7), (2570.0, 2488.0)),
}
METRICS = (
    ("storage.read_bandwidth", "MB/s", "1048576"),
    ("storage.write_bandwidth", "MB/s", "1048576"),
    ("storage.random_read_iops", "1/s", "4096"),
    ("storage.random_read_latency", "us", "4096"),
)


def measurements(raw: Raw) -> list[Measurement]:
    collected: list[Measurement] = []
    for storage, columns in STORAGE_SAMPLES.items():
        for (metric, unit, block), values in zip(METRICS, columns, strict=True):
            for node, value in zip(GPUS, values, strict=True):
                collected.append(_storage(raw, storage, metric, unit, block, node, value))
            if metric != "storage.random_read_latency":
                collected.append(_rack_sum(storage, metric, unit, block, sum(values), collected[-2:]))
    collected += _links(raw) + _collectives(raw)
    return collected


def _storage(raw: Raw, storage: str, metric: str, unit: str, block: str, node: str, value: float) -> Measurement:
    spread = (0.985, 1.0, 1.012)
    reason = None
    if (storage, metric, node) == ("cephfs", "storage.write_bandwidth", "gpu-02"):
        reason = "fio exited with 1: No space left on device"
    if (storage, metric, node) == ("nfs-tcp", "storage.random_read_iops", "gpu-01"):
        spread = (0.6, 1.0, 1.5)
    job = f'{{"fio version": "fio-3.39", "jobs": [{{"jobname": "{storage}", "bw_bytes": {value * 1e6:.0f}}}]}}\n'
    sha = raw.add(node, f"fio --output-format=json --name={metric.split('.')[1]} --directory=/mnt/{storage}", job)
    return Measurement(
        metric=metric,
        scope=Scope.NODE,
        members=(node,),
        labels={"storage": storage, "block_bytes": block},
        unit=unit,
        samples=() if reason else tuple(value * s for s in spread),
        reason=reason,
        conditions={
            "direct": True,
            "runtime_s": 10,
            "ramp_s": 2,
            "iodepth": 8,
            "clients_at_once": 2,
            "cache": "dropped on clients and server before each run",
            "versions": {"fio": "3.39", "kernel": "6.12.57"},
        },
        raw=(sha,),
        step=f"storage:{storage}",
    )


def _rack_sum(storage: str, metric: str, unit: str, block: str, value: float, parts: list[Measurement]) -> Measurement:
    whole = all(p.samples for p in parts)
    return Measurement(
        metric=metric,
        scope=Scope.RACK,
        members=GPUS,
        labels={"storage": storage, "block_bytes": block},
        unit=unit,
        samples=(value * 0.99, value, value * 1.01) if whole else (),
        reason=None if whole else "a client has no number, so there is no sum",
        raw=tuple(sha for p in parts for sha in p.raw),
        step=f"storage:{storage}",
    )


def _links(raw: Raw) -> list[Measurement]:
    rows = (
        ("link.rdma_write_bandwidth", "Gb/s", (0.1362, 0.1388, 0.1391), "ib_write_bw -d rdma0 -D 5 gpu-02"),
        ("link.rdma_write_latency", "us", (402.1, 398.6, 411.0), "ib_write_lat -d rdma0 -n 200 gpu-02"),
        ("link.tcp_bandwidth", "Gb/s", (1.021, 1.013, 1.034), "iperf3 -J -c 10.90.0.12 -t 5"),
    )
    return [
        Measurement(
            metric=metric,
            scope=Scope.PAIR,
            members=GPUS,
            labels={"rail": "0"},
            unit=unit,
            samples=samples,
            conditions={"duration_s": 5, "perftest_version": "25.01"},
            raw=(raw.add("gpu-01", command, f"{metric} {samples}\n"),),
            step="links",
        )
        for metric, unit, samples, command in rows
    ]


def _collectives(raw: Raw) -> list[Measurement]:
    collected = []
    for op, peak in (("all_reduce", 0.0212), ("all_gather", 0.0301), ("alltoall", 0.0148)):
        sha = raw.add("gpu-01", f"mpirun -np 2 rackproof-collective {op}", "\n".join(f"{op} {i}" for i in range(3000)))
        for power in range(10, 23, 2):
            count = 1 << power
            busbw = peak * count / (count + 60000)
            for metric, unit, value in (
                ("collective.busbw", "GB/s", busbw),
                ("collective.algbw", "GB/s", busbw / (1.0 if op == "all_reduce" else 0.5)),
                ("collective.wrong_values", "1", 0.0),
            ):
                collected.append(
                    Measurement(
                        metric=metric,
                        scope=Scope.RACK,
                        members=GPUS,
                        labels={"op": op, "bytes": str(count), "engine": "mpi"},
                        unit=unit,
                        samples=(value,),
                        conditions={
                            "iterations": 20,
                            "warmup": 5,
                            "ranks_per_node": 1,
                            "versions": {"openmpi": "5.0.7"},
                        },
                        raw=(sha,),
                        step="collectives",
                    )
                )
    return collected


# ---- criteria -------------------------------------------------------------------------------------------------------


def criterion_verdicts(measured: Iterable[Measurement]) -> list[Verdict]:
    measured = list(measured)
    verdicts = []
    for m in measured:
        if not m.metric.startswith("storage.") or m.metric == "storage.random_read_latency" or m.scope is Scope.RACK:
            continue
        short = m.metric.split(".")[1]
        storage = m.labels["storage"]
        scratch = next(
            r for r in measured if (r.metric, r.members, r.labels["storage"]) == (m.metric, m.members, "scratch")
        )
        if storage == "scratch":
            verdicts.append(_absolute(m, f"local-{short.replace('_', '-')}", 100.0))
        else:
            verdicts.append(_share(m, f"{storage}-{short.replace('_', '-')}", median(scratch.samples), 5.0))
    verdicts += [
        _absolute(m, m.metric.replace("link.", "link-").replace("_", "-"), bar)
        for m in measured
        for metric, bar in (("link.rdma_write_bandwidth", 0.05), ("link.tcp_bandwidth", 1.0))
        if m.metric == metric
    ]
    for m in measured:
        if m.metric == "collective.wrong_values":
            verdicts.append(_exact(m))
        if m.metric == "collective.busbw" and m.labels["bytes"] == "4194304":
            verdicts.append(_absolute(m, f"busbw-{m.labels['op'].replace('_', '-')}", 0.01, required=False))
    return verdicts


def _spoken(m: Measurement) -> str:
    return m.metric.split(".")[1].replace("_", " ").capitalize()


def _spread(samples: tuple[float, ...]) -> float | None:
    return 100 * stdev(samples) / mean(samples) if len(samples) > 1 else None


def _criterion(m: Measurement, identifier: str, **fields: Any) -> Verdict:
    common = {"kind": "criterion", "required": True, "statistic": "median", "source": "kit"}
    own = {"subject": subject_of(m.scope, m.members), "metric": m.metric, "labels": m.labels, "raw": m.raw}
    return Verdict(id=identifier, **{**common, **own, "samples": m.samples, **fields})


def _absolute(m: Measurement, identifier: str, bar: float, required: bool = True) -> Verdict:
    value = median(m.samples)
    gap = 100 * (value - bar) / bar
    return _criterion(
        m,
        identifier,
        title=f"{_spoken(m)} of {m.labels.get('storage', 'the fabric')}",
        status=Status.PASS if gap >= 5 else Status.WARN if gap >= 0 else Status.FAIL,
        required=required,
        message=f"expected ≥ {bar:g} {m.unit} actual {value:.4g} {m.unit}",
        value=value,
        unit=m.unit,
        bar=f"≥ {bar:g} {m.unit}",
        bar_value=bar,
        distance_pct=gap,
        cv_pct=_spread(m.samples),
        reason="Half of what an emulated rack gives on a small machine: slower means misconfigured",
        hint="Look at the host first: is something else running?",
    )


def _share(m: Measurement, identifier: str, ceiling: float, bar: float) -> Verdict:
    common: dict[str, Any] = {
        "title": f"{_spoken(m)} of {m.labels['storage']} against the local drive",
        "reason": "Server and client share one emulated drive model, so the network is what is left to explain a loss",
        "hint": "Compare the link tests of this node; then look at mount options and at the server's threads",
    }
    if not m.samples:
        unmeasured = {"status": Status.UNMEASURED, "message": m.reason or "", "bar": f"≥ {bar:g} %"}
        return _criterion(m, identifier, **common, **unmeasured)
    value = median(m.samples)
    share, spread = 100 * value / ceiling, _spread(m.samples) or 0.0
    # The sample's own bar of 3 % lets one client of NFS over RDMA fail.
    limit = bar if m.metric != "storage.read_bandwidth" else 3.0
    status = Status.INVALID if spread > 15 else Status.PASS if share >= limit else Status.FAIL
    message = (
        f"coefficient of variation {spread:.1f} % is above 15 %"
        if status is Status.INVALID
        else f"expected ≥ {limit:g} % actual {share:.3g} %"
    )
    return _criterion(
        m,
        identifier,
        **common,
        status=status,
        message=message,
        bar=f"≥ {limit:g} %",
        value=share,
        unit="percent",
        bar_value=limit,
        ceiling=ceiling,
        ceiling_unit=m.unit,
        measured=value,
        measured_unit=m.unit,
        distance_pct=100 * (share - limit) / limit,
        cv_pct=spread,
    )


def _exact(m: Measurement) -> Verdict:
    return _criterion(
        m,
        f"collective-correct[{m.labels['op']},{m.labels['bytes']}]",
        title="Collectives give the right result",
        status=Status.PASS,
        message="expected = 0 actual 0",
        value=0.0,
        unit="1",
        bar="= 0",
        bar_value=0.0,
        statistic="max",
        reason="A fast wrong result is worse than none",
        hint="Run the same operation on fewer nodes until it is right",
    )


# ---- the whole ------------------------------------------------------------------------------------------------------


def deploys(raw: Raw) -> list[DeployRecord]:
    return [
        DeployRecord(
            inventory="inventories/lab.py",
            deploy="deploys/cluster.py",
            exit_status=0,
            ok=True,
            nodes=(
                NodeChanges(node="storage-01", reached=True, unchanged=41),
                NodeChanges(node="gpu-01", reached=True, changed=("base: sysctl",), unchanged=36),
                NodeChanges(
                    node="gpu-02", reached=True, changed=tuple(f"storage: mount {i}" for i in range(8)), unchanged=29
                ),
            ),
            elapsed_s=14.21,
            raw=(raw.add("controller", "pyinfra inventories/lab.py deploys/cluster.py", "--> Results\n"),),
        )
    ]


def stages() -> list[StageTime]:
    times = (
        ("deploy", "10:04:05Z", "10:04:19Z", 14.21),
        ("validate", "10:04:19Z", "10:04:25Z", 5.83),
        ("bench", "10:04:25Z", "10:10:17Z", 352.4),
    )
    return [
        StageTime(stage=s, started=f"2026-11-21T{a}", finished=f"2026-11-21T{b}", elapsed_s=t) for s, a, b, t in times
    ]


def judged(verdicts: Iterable[Verdict]) -> Judgement:
    verdicts = tuple(sorted(verdicts, key=lambda v: (v.kind, v.id, v.subject)))
    return Judgement(
        architecture="virtual-rack",
        architecture_version="1.0",
        outcome=outcome_of(v.status for v in verdicts if v.required),
        verdicts=verdicts,
    )


def sample() -> tuple[Certificate, Raw]:
    """The certificate with something of everything, and its outputs."""
    raw = Raw()
    checks, numbers = check_results(raw), measurements(raw)
    certificate = build_certificate(
        run=run_info(),
        architecture=architecture(),
        judgement=judged(check_verdicts(checks) + criterion_verdicts(numbers)),
        measurements=numbers,
        checks=checks,
        stages=stages(),
        deploys=deploys(raw),
        commands=raw.commands,
        chain_head=HEAD,
        records_count=1204,
        finished="2026-11-21T10:10:17Z",
        notes=("Resumed once: the controller was restarted during the storage benchmarks.",),
    )
    return certificate, raw


def passing() -> tuple[Certificate, Raw]:
    """The same rack with everything that did not pass left out."""
    certificate, raw = sample()
    verdicts = [v for v in certificate.verdicts if v.status in (Status.PASS, Status.WARN)]
    return rejudged(certificate, verdicts), raw


def rejudged(certificate: Certificate, verdicts: Iterable[Verdict], **changes: Any) -> Certificate:
    """A certificate about the same run with other verdicts."""
    return build_certificate(
        run=changes.get("run", run_info()),
        architecture=changes.get("architecture", architecture()),
        judgement=judged(verdicts),
        measurements=changes.get("measurements", measurements(Raw())),
        checks=(),
        stages=certificate.stages,
        deploys=changes.get("deploys", ()),
        commands=changes.get("commands", ()),
        chain_head=HEAD,
        records_count=certificate.evidence.records,
        finished=certificate.finished,
        notes=changes.get("notes", ()),
    )
