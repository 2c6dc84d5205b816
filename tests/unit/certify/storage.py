"""The storage of a written rack: fio as in ``storage_nodes``, and the kit's programs around DLIO and gdsio."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from rackproof.bench.ingest import dlio
from rackproof.bench.storage import gds_reader
from rackproof.bench.storage.program_runs import configs_of
from rackproof.core.architecture import DlioRun, Storage
from rackproof.remote.command import CommandResult
from tests.unit.bench.test_dlio import RECORDED
from tests.unit.fakes import reply
from tests.unit.storage_nodes import StorageNodes

RECORD = 114_660
PER_FILE = 1251
"""Bytes of a sample, and samples of a file, of MLPerf Storage's ResNet-50."""


class Rates(dict[str, float]):
    """B/s by workload; no two runs of a row are equally fast."""

    def __init__(self, **rates: float) -> None:
        super().__init__(rates)
        self._runs = count()

    def __getitem__(self, workload: str) -> float:
        return super().__getitem__(workload) * (1 + next(self._runs) % 7 / 1000)


@dataclass
class RackStorage(StorageNodes):
    clients: list[str] = field(default_factory=list)
    """Nodes in the order of the inventory."""
    runs: dict[str, DlioRun] = field(default_factory=dict)
    utilisation: float = 95.0
    """Utilisation of emulated accelerators, percent."""
    demand: float = 0.0
    """Samples a second of one that is always busy."""
    gpus: int = 8
    gds: float = 3.6e9
    """B/s of a GPU that reads its own memory full."""

    def answer(self, node: str, command: str) -> CommandResult | None:
        for config in configs_of(command, dlio.PROGRAM):
            return reply(node, command, f"{json.dumps(self._dlio(node, config))}\n")
        for config in configs_of(command, gds_reader.PROGRAM):
            return reply(node, command, f"{json.dumps(self._gds(node, config))}\n")
        return super().answer(node, command)

    def _dlio(self, node: str, config: dict[str, Any]) -> dict[str, Any]:
        told = {dlio.MARK: 1, "job": config["job"], "action": config["action"], "node": node, "version": "2.0.0"}
        if config["action"] == "make":
            return told | {"made": True}
        clients, samples = self.clients[: config.get("clients", 1)], config["files"] * PER_FILE
        summary = json.loads(RECORDED.read_text())
        utilisation = self.utilisation + next(_ODD) % 7 / 100
        rate = config["accelerators"] * self.demand * utilisation / 100
        summary["metric"] |= {
            "train_au_percentage": [utilisation], "train_au_mean_percentage": utilisation,
            "train_throughput_samples_per_second": [rate], "train_throughput_mean_samples_per_second": rate,
        }  # fmt: skip
        summary |= {
            "num_accelerators": config["accelerators"], "num_hosts": len(clients), "hostname": node, "epochs": 1,
            "num_files_train": config["files"], "num_samples_per_file": PER_FILE,
        }  # fmt: skip
        for client in clients:
            self._count(client, "hps", 0, samples * RECORD // len(clients))
        return told | {"summary": json.dumps(summary), "wall_s": samples / rate + 30}

    def _gds(self, node: str, config: dict[str, Any]) -> dict[str, Any]:
        reads, threads, block = config["action"] == "read", config["threads"], config["block_bytes"]
        seconds = float(config["seconds"]) if reads else 60.0
        requests = int(self.gds * (1 + next(_ODD) % 7 / 1000) * seconds / block)
        self._count(node, "hps", 0 if reads else 1, self.gpus * requests * block)
        kib = requests * block // 1024
        line = (
            f"IoType: {config['action'].upper()} XferType: GPUD Threads: {threads} DataSetSize: {kib}/{kib}(KiB)"
            f" IOSize: {block // 1024}(KiB) Throughput: {requests * block / seconds / 1024**3:.6f} GiB/sec,"
            f" Avg_Latency: 2200.000000 usecs ops: {requests} total_time {seconds:.6f} secs\n"
        )
        sizes = [config["file_bytes"]] * threads
        rows = [{"gpu": gpu, "status": 0, "text": line, "sizes": sizes} for gpu in range(self.gpus)]
        return {gds_reader.MARK: 1, "job": config["job"], "folder": config["folder"], "gpus": rows}

    def _count(self, node: str, storage: str, way: int, moved: int) -> None:
        point = self.architecture.storage[storage].mountpoints[0]
        self.moved.setdefault((node, point), [0, 0])[way] += moved

    def _storage(self, text: str) -> Storage:
        """A state without folders names the file system, not its mount."""
        named = (one for one in self.architecture.storage.values() if one.mountpoints[0] in text)
        return next(named, list(self.architecture.storage.values())[-1])

    def _state(self, node: str, command: str, when: str, addresses: tuple[str, ...]) -> str:
        text = super()._state(node, command, when, addresses)
        job = next((name for name in self.runs if f"/dlio-{name}/train " in command), None)
        if "echo -- tree" not in command or job is None:
            return text
        lines = text.partition("-- files\n")[0].splitlines()
        head = "".join(f"{line}\n" for line in lines if not line.startswith("cached_bytes"))
        files = self.runs[job].files
        return f"cached_bytes 0 {files}\n{head}-- tree\n{files} {files * PER_FILE * RECORD}\n-- end\n"


_ODD = count(1)
"""No two outputs are the same."""
