"""The virtual rack in memory: the kit's own stages, over recorded answers, and tools that do what they are told."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rackproof.cli import runs
from rackproof.cli.main import cli
from rackproof.core.evidence import CheckResult
from rackproof.core.planned_checks import PlannedChecks, planned
from rackproof.core.rack import Rack
from rackproof.evidence.session import Session
from rackproof.parse.identity import IDENTITY_COMMAND, SIMULATED_GPUS
from rackproof.remote.collect import RecordingReader
from rackproof.remote.command import CommandResult
from rackproof.remote.recording_folder import read_folder
from rackproof.run import stages
from rackproof.run.converge import Converged
from rackproof.validation.context import Context
from rackproof.validation.known import load_checks
from rackproof.validation.selection import Selection
from rackproof.validation.survey import cases
from tests.unit.deploys import deployed
from tests.unit.fabric import FabricNodes
from tests.unit.fakes import FakeFleet, identity_answer, reply, virtual_rack
from tests.unit.storage_nodes import RATES, StorageNodes

RECORDINGS = Path(__file__).parents[2] / "data/recordings/virtual-rack"
INVENTORY = "inventories/lab.py"


class Rates(dict[str, float]):
    """No two runs are equally fast."""

    def __init__(self) -> None:
        super().__init__(RATES)
        self._runs = count()

    def __getitem__(self, workload: str) -> float:
        return super().__getitem__(workload) * (1 + next(self._runs) / 1000)


class Emulated:
    """Answers of three healthy nodes."""

    def __init__(self) -> None:
        recordings = read_folder(RECORDINGS)
        self.rack = Rack(INVENTORY, tuple(recording.node for recording in recordings))
        self.recorded = {recording.node.name: recording.results for recording in recordings}
        self.names = [node.name for node in self.rack.nodes]
        self.fabric = FabricNodes(
            {str(node.data["fabric_addresses"][0]).partition("/")[0]: node.name for node in self.rack.nodes}
        )
        self.storage = StorageNodes(virtual_rack(), Rates())

    def answer(self, node: str, command: str) -> CommandResult | None:
        if command == stages.FACTS:
            return reply(node, command, "Linux 6.12.0 x86_64\nDebian GNU/Linux 13 (trixie)\n2\nMemTotal: 1002336 kB\n")
        if command == IDENTITY_COMMAND:
            model = "/sys/class/dmi/id/sys_vendor:QEMU\n/sys/class/dmi/id/product_name:Standard PC (Q35 + ICH9, 2009)\n"
            simulated = SIMULATED_GPUS if node.startswith("gpu") else ""
            return identity_answer(node, self.names.index(node), more=f"{model}hypervisor\n{simulated}\n")
        return self.fabric.answer(node, command) or self.storage.answer(node, command)

    def validate(
        self,
        session: Session,
        on_check: Callable[[CheckResult], object],
        on_planned: Callable[[PlannedChecks], object],
        *,
        selection: Selection,
        folder: Path,
    ) -> list[CheckResult]:
        readers = {
            name: RecordingReader(name, known=[session.record(result) for result in results.values()])
            for name, results in self.recorded.items()
        }
        context = Context(session.rack, session.architecture, readers, selection=selection)
        chosen = list(cases(context, load_checks(folder)))
        on_planned(planned((case.check.id, case.item, case.node.name) for _, case in chosen))
        results = [context.evaluate(function, case) for function, case in chosen]
        for result in results:
            on_check(result)
        return results

    def converge(self, rack: Rack, *, dry: bool = False, **_: Any) -> Converged:
        return deployed(self.names, dict.fromkeys(self.names, ("Base | Files",)), dry=dry, inventory=rack.source)

    def certify(self, reports: Path) -> Path:
        """The folder of a run; what ``certify`` printed is in its ``output.txt``."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stages, "Fleet", lambda rack: FakeFleet(rack, self.answer))
            patch.setattr(stages, "run_validators", self.validate)
            patch.setattr(stages, "converge", self.converge)
            patch.setattr(runs, "load_rack", lambda inventory: self.rack)
            result = CliRunner().invoke(cli, ["certify", INVENTORY, "--quiet", "--output", str(reports)])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        (folder,) = reports.iterdir()
        (folder / "output.txt").write_text(result.output)
        return folder
