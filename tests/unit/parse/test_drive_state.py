"""Identity and counters of block devices, and the OSDs of a Ceph cluster."""

from __future__ import annotations

import json
import subprocess

from rackproof.bench.drives.listing import ListedDrive, counted, state_command
from rackproof.parse.block import parse_drives
from rackproof.parse.ceph import Osd, OsdBench, parse_osd_bench, parse_osds
from rackproof.parse.drive_state import BlockDevice, DriveState, parse_drive_state, split_fio, split_state
from tests.unit.parse import tool_output
from tests.unit.refusals import refuses, refuses_parts, survives_damage

STATE = """host storage-01 1795643857.332645890
device nvme0c0n1   398633    59175 24579978   593375   793589  1881958 98585168  1872421        0   414984  2756448
 identity S64HNE0T400100      \n\
device sda 12 0 800 3 1 0 16 0 0 5 7 0 0 0 0
 identity t10.ATA     SAMSUNG MZ7LH480                        S45PNA0M500000
device sdb 12 0 800 3 1 0 16 0 0 5 7 0 0 0 0
 identity \n\
end of devices
"""


def test_state_of_drives() -> None:
    state = parse_drive_state(STATE)
    assert state.host == "storage-01"
    assert state.devices == {
        "nvme0c0n1": BlockDevice("S64HNE0T400100", 24579978 * 512, 98585168 * 512),
        "sda": BlockDevice("t10.ATA SAMSUNG MZ7LH480 S45PNA0M500000", 800 * 512, 16 * 512),
        "sdb": BlockDevice("", 800 * 512, 16 * 512),
    }


def test_what_the_script_prints_here_can_be_read() -> None:
    for devices in ((), ("nvme99n1",)):
        shell = subprocess.run(["sh", "-c", state_command(devices)], capture_output=True, text=True, check=True)
        state = parse_drive_state(shell.stdout)
        assert not devices or not state.devices


def test_a_run_of_fio_between_two_states() -> None:
    before, rest = split_state(f"{STATE}{{}}\n-- fio 0\n{STATE}")
    assert (before, split_fio(rest)) == (STATE, ("{}\n", 0, STATE))
    for end in range(len("{}\n-- fio")):
        assert split_fio(rest[:end]) is None
    assert split_state(STATE[:-1]) == (STATE[:-1], "")


test_a_damaged_state_is_refused = refuses(
    parse_drive_state,
    ("", "no output"),
    (STATE.replace("end of devices\n", ""), "cut off"),
    (STATE.replace("host storage-01", "host"), "unexpected output"),
    (STATE.replace("device sda", "device loop0"), "unexpected line"),
    (STATE.replace("device sda", "device sdb"), "unexpected line"),
    (STATE.replace("device sda 12 0 800", "device sda 12 0 x"), "unexpected line"),
    (STATE.replace(" identity \n", ""), "unexpected output"),
)


def test_a_drive_with_several_paths_is_read_above_them_and_counted_where_the_kernel_counts() -> None:
    drive = next(drive for drive in parse_drives(tool_output("drives.txt")) if drive.name == "nvme0")
    listed = ListedDrive("gpu-01/data-0", drive, "S64")
    assert listed.devices == ("nvme0n1", "nvme0n2")
    assert listed.watched == ("nvme0n1", "nvme0n2", "nvme0c0n1", "nvme0c0n2")

    def state(above: int, path: int) -> DriveState:
        return DriveState("gpu-01", {n: BlockDevice("S64", path if "c" in n else above, 0) for n in listed.watched})

    assert counted(listed, state(0, 0), state(0, 1000)) == (2000, 0), "an older kernel counts on the paths"
    assert counted(listed, state(0, 0), state(1000, 1000)) == (2000, 0)


DUMP = '\n{"epoch":21,"osds":[{"osd":0,"up":1,"in":1},{"osd":3,"up":0,"in":1}]}\n'
METADATA = (
    '\n[{"id":0,"hostname":"a","devices":"nvme1n1,sda","bluestore_bdev_devices":"sda"},{"id":3}]\n1795643857.33\n'
)
BENCH = """{
    "bytes_written": 12288000,
    "blocksize": 4096,
    "elapsed_sec": 1.3718913019999999,
    "bytes_per_sec": 8956977.8466311768,
    "iops": 2186.7621695876896
}
"""


def test_osds_and_where_they_are() -> None:
    on_partitions = METADATA.replace('"bluestore_bdev_devices":"sda"', '"bluestore_bdev_devices":"sda2,nvme1n1p3"')
    assert parse_osds(DUMP + on_partitions)[0].devices == ("sda", "nvme1n1")
    assert parse_osds(DUMP + METADATA) == (Osd(0, True, "a", ("sda",)), Osd(3, False, "", ()))
    assert parse_osd_bench(BENCH) == OsdBench(12288000, 4096, 8956977.8466311768)
    assert parse_osd_bench(json.dumps(json.loads(BENCH))) == parse_osd_bench(BENCH)


test_osds_that_contradict_each_other_are_refused = refuses(
    parse_osds,
    (DUMP.replace('"osd":3', '"osd":0') + METADATA, "one twice"),
    (DUMP.replace('{"osd":0,"up":1,"in":1},', "") + METADATA, "osd.0, osd dump does not"),
    (DUMP, "no JSON document"),
    (METADATA, "no JSON document"),
    (DUMP + METADATA.replace('"hostname":"a"', '"hostname":7'), "hostname is not a string"),
)
test_a_damaged_osd_bench_is_refused = refuses(
    parse_osd_bench,
    (BENCH.replace("1.37", "2.74"), "contradicts 12288000 B"),
    (BENCH.replace("1.3718913019999999", "0"), "contradicts"),
    (BENCH.replace("12288000", '"much"'), "not an integer"),
    (f"{BENCH}Error ETIMEDOUT\n", "also printed"),
    (f"{BENCH}{BENCH}", "more than one"),
)
test_no_part_is_a_whole = refuses_parts((parse_drive_state, STATE), (parse_osd_bench, BENCH.rstrip()))
test_damage_is_survived = survives_damage(
    (parse_drive_state, STATE), (parse_osd_bench, BENCH), (parse_osds, DUMP + METADATA)
)
