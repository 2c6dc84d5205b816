"""Where adapters and GPUs are in a node."""

from __future__ import annotations

from functools import partial

from rackproof.parse.placement import Place, Places, parse_places
from tests.unit.fabric import NO_NUMA, PCI
from tests.unit.refusals import refuses, refuses_parts, survives_damage

read = partial(parse_places, ports=["fabric0"])
PATH = "/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0"


def test_places_of_an_adapter_and_the_gpus() -> None:
    gpus = tuple(line for line in PCI.splitlines()[3:] if line.startswith("/sys/"))
    assert read(PCI) == Places((Place(PATH, 0, "0-31,64-95"),), gpus, numactl=True, built=False)
    assert read(NO_NUMA) == Places((Place("none", -1, ""),), (), numactl=False, built=False)
    assert read(NO_NUMA.replace("no built", "built")).built


test_an_answer_that_does_not_place_a_port_is_refused = refuses(
    read,
    ("", "cut off"),
    (PCI.replace("no built perftest", "perftest"), "cut off"),
    (PCI.replace("/usr/bin/numactl", "/usr/bin/taskset"), "cut off"),
    (NO_NUMA.replace("-1", "none"), "no NUMA node: 'none'"),
    (PCI.replace("0-31,64-95", ""), "no processors of fabric0: ''"),
    (PCI.replace("0-31,64-95", "0-31;reboot"), "no processors of fabric0"),
)
test_no_part_of_an_answer_is_taken_for_one = refuses_parts((read, PCI), (read, NO_NUMA))
test_damage_is_survived = survives_damage((read, PCI), (read, NO_NUMA))
