"""Faults of machines, and the check that must notice each.

The recordings of a healthy virtual rack are changed the way that machines are: a mount gone, a port at MTU 1500, a
GPU that fell off the bus.
"""

# ruff: noqa: E501  (one fault a line)

from __future__ import annotations

from dataclasses import replace

from rackproof.remote.command import CommandResult
from tests.unit.validation.checking import Change, Lines, OnceReplaced, Replace, Says


def no_gpu_7(result: CommandResult) -> CommandResult:
    head, *gpus = result.text.split("\t<gpu id=")
    text = "\t<gpu id=".join([head, *gpus[:-1]]) + "</nvidia_smi_log>\n"
    return replace(result, stdout=text.replace("<attached_gpus>8<", "<attached_gpus>7<").encode())


def weaker_link(result: CommandResult) -> CommandResult:
    """One link less between GPU2 and GPU5, seen from both."""
    rows = [line.split("\t") for line in result.text.split("\n")]
    for row in rows:
        if row[0] in ("GPU2", "GPU5"):
            row[6 if row[0] == "GPU2" else 3] = "NV17"
    return replace(result, stdout="\n".join("\t".join(row) for row in rows).encode())


def no_row_of_gpu_7(result: CommandResult) -> CommandResult:
    """The whole matrix of a machine that has lost its last GPU."""
    rows = [line.split("\t") for line in result.text.split("\n")]
    kept = [
        row[:8] + row[9:] if "GPU0" in row[:2] or row[0].startswith("GPU") else row for row in rows if row[0] != "GPU7"
    ]
    return replace(result, stdout="\n".join("\t".join(row) for row in kept).encode())


def one_connection(result: CommandResult) -> CommandResult:
    """The NFS mount over TCP with the first of its connections only."""
    head, at, rest = result.text.partition("mounted on /mnt/nfs-tcp ")
    block, per_op, tail = rest.partition("per-op statistics")
    lines = block.splitlines(keepends=True)
    first = next(line for line in lines if "xprt:" in line)
    kept = "".join(line for line in lines if "xprt:" not in line or line is first)
    return replace(result, stdout=(head + at + kept + per_op + tail).encode())


GPU, STORAGE = "gpu-01", "storage-01"
MANAGER, UPDATERS, CPUS, SMI = "DefaultLimitMEMLOCK", "apt-daily", "scaling_governor", "nvidia-smi"
NO_REPLY = Replace("2 packets transmitted, 2 received", "2 packets transmitted, 0 received")
TIMED_OUT = Says("status 124\n")

# check, item, node, part of the command, what happens to its answer, words of the message
FAULTS: list[tuple[str, str, str, str, Change, str]] = [
    ("base.packages", "", GPU, "dpkg-query", Lines(r"^installed lsof$"), "actual missing: lsof"),
    ("base.packages", "", GPU, "dpkg-query", Replace("installed fio\n", "half-configured fio\n"), "missing: fio"),
    ("base.time_synchronised", "", GPU, "tracking", Replace("Normal", "Not synchronised"), "actual not synchronised"),
    ("base.time_synchronised", "", GPU, "sources", Replace("^,*,", "^,?,"), "expected to follow 10.77.0.11"),
    ("base.time_synchronised", "", GPU, "sources", Replace("10.77.0.11", "10.99.0.1"), "expected to follow 10.77.0.11"),
    ("base.time_synchronised", "", GPU, "sources", Says("^,*,10.77.0.11,10,6,0,8,0.0,0.0,0.0\n"), "actual none to the last"),
    ("base.time_synchronised", "", STORAGE, "tracking", Replace("Normal", "Not synchronised"), "not synchronised"),
    ("base.time_offset", "", GPU, "tracking",
     Says("0A4D000B,10.77.0.11,11,1795248435.0,-0.250000000,0.0001,0.0004,-8.6,0.03,2.5,0.002,0.0005,130.5,Normal\n"),
     "expected an offset of at most 100 ms, actual 250.000 ms"),
    ("base.memlock_login", "", GPU, "ulimit", Says("8192\n"), "expected unlimited, actual 8192"),
    ("base.memlock_services", "", GPU, MANAGER, Replace("infinity", "8388608"), "expected infinity, actual 8388608"),
    ("base.sysctl", "vm.swappiness", GPU, "vm.swappiness", Replace("swappiness = 1", "swappiness = 60"), "actual 60"),
    ("base.sysctl", "net.ipv4.tcp_rmem", GPU, "tcp_rmem", Replace("131072", "87380"), "actual 4096 87380 67108864"),
    ("base.sysctl", "vm.swappiness", GPU, "vm.swappiness", Lines("swappiness"), "actual no such key in this kernel"),
    ("base.transparent_hugepages", "", GPU, "transparent", Says("[always] madvise never\n"), "actual always"),
    ("base.cpu_governor", "", GPU, CPUS,
     Says("/sys/devices/system/cpu/cpu0\n/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor powersave\n"),
     "expected performance on every processor, actual cpu0 powersave"),
    ("base.updates_stopped", "", GPU, UPDATERS,
     OnceReplaced("ActiveState=inactive\nUnitFileState=masked", "ActiveState=active\nUnitFileState=enabled"),
     "apt-daily.timer: expected inactive and not enabled, actual active and enabled"),
    ("base.updates_stopped", "", GPU, UPDATERS, OnceReplaced("UnitFileState=masked", "UnitFileState=enabled"), "enabled"),
    ("base.apt_periodic", "", GPU, "apt-config", Replace('APT::Periodic::Enable "0"', 'APT::Periodic::Enable "1"'),
     "expected 0, actual 1"),
    ("base.apt_periodic", "", GPU, "apt-config", Lines("APT::Periodic::Enable"), "expected 0, actual unset"),
    ("base.kernel", "", GPU, "uname", Replace("/lib/modules/", "/lib/modules/0"), "expected modules of the running"),
    ("base.kernel", "", GPU, "uname", Lines("^/lib"), "actual none"),
    ("base.kernel", "", GPU, "uname", Replace("modules.dep\n", "modules.dep\n/lib/modules/99.1/modules.dep\n"),
     "running kernel, newest installed: expected 99.1"),
    ("base.kernel", "", GPU, "uname", Replace("modules.dep\n", "modules.dep\nreboot required\n"), "reboot-required"),
    ("fabric.port", "fabric0", GPU, "ip -j addr", Replace('"fabric0"', '"enp0s16"'), "expected a port fabric0, actual none"),
    ("fabric.port", "fabric0", GPU, "ip -j addr", Replace("52:54:77:20:00:0b", "52:54:77:20:00:99"), "actual 52:54:77:20:00:99"),
    ("fabric.link", "fabric0", GPU, "ip -j addr", Replace('"LOWER_UP"', '"NO-CARRIER"'), "expected up with carrier, actual"),
    ("fabric.address", "fabric0", GPU, "ip -j addr", Replace('"10.77.0.21"', '"10.77.0.22"'),
     "expected 10.77.0.21/24, actual 10.77.0.22/24"),
    ("fabric.address", "fabric0", GPU, "ip -j addr", Replace('"prefixlen":24', '"prefixlen":16'), "actual 10.77.0.21/16"),
    ("fabric.mtu", "fabric0", GPU, "ip -j addr", Replace('"mtu":9000', '"mtu":1500'), "MTU: expected 9000, actual 1500"),
    ("fabric.port_sysctl", "fabric0", GPU, "rp_filter", Replace("all.rp_filter = 0", "all.rp_filter = 3"), "actual 3"),
    ("fabric.port_sysctl", "fabric0", GPU, "rp_filter", Replace("fabric0.arp_ignore = 1", "fabric0.arp_ignore = 0"),
     "arp_ignore: expected 1, actual 0"),
    ("fabric.rdma", "fabric0", GPU, "rdma -j", Says("[]\n"), "expected RDMA device rxe0 on fabric0, actual none"),
    ("fabric.rdma", "fabric0", GPU, "rdma -j", Replace("ACTIVE", "DOWN"), "expected ACTIVE, actual DOWN"),
    ("fabric.rdma", "fabric0", GPU, "rdma -j", Replace('"fabric0"', '"enp0s3"'), "actual rxe0 on enp0s3"),
    ("fabric.rdma", "fabric0", GPU, "rdma -j", Replace('"rxe0"', '"rxe9"'), "expected rxe0, actual rxe9"),
    ("fabric.names", "", GPU, "getent", Replace("10.77.0.11 ", "10.0.2.15 "), "storage-01: expected 10.77.0.11, actual 10.0.2.15"),
    ("fabric.ssh", "", GPU, "ssh -n", Says("root@gpu-02: Permission denied (publickey,password).\nstatus 255\n"),
     "expected a login on gpu-02 without a question, actual root@gpu-02: Permission denied"),
    ("fabric.ssh", "", GPU, "ssh -n", Says("Host key verification failed.\nstatus 255\n"), "Host key verification failed"),
    ("storage_server.running", "", STORAGE, "nfsd", Says("no nfsd\n"), "expected NFS server threads, actual none"),
    ("storage_server.running", "", STORAGE, "nfsd", Says("threads 0\nversions\n"), "actual none"),
    ("storage_server.listens", "rdma 20049", STORAGE, "nfsd", Lines("^port rdma"), "expected rdma 20049, actual tcp 2049"),
    ("storage_server.version", "4.2", STORAGE, "nfsd", Replace("+4.2", "-4.2"), "expected NFS 4.2, actual 4, 4.1"),
    ("storage_server.export", "/srv/nfs", STORAGE, "exportfs", Lines("^/srv"), "actual not exported"),
    ("storage_server.export", "/srv/nfs", STORAGE, "exportfs", Replace("10.77.0.0/24", "10.77.9.0/24"),
     "expected /srv/nfs exported to 10.77.0.21 (gpu-01), actual to 10.77.9.0/24"),
    ("storage_server.export", "/srv/nfs", STORAGE, "exportfs", Replace("(sync,", "(async,"), "expected rw, sync, actual async, rw"),
    ("storage_server.export", "/srv/nfs", STORAGE, "exportfs", Replace(",rw,", ",ro,"), "actual ro, sync"),
    ("storage_server.drive", "/srv/nfs", STORAGE, "mountinfo", Lines("/srv/nfs"), "expected a drive mounted on /srv/nfs"),
    ("storage_server.drive", "/srv/nfs", STORAGE, "mountinfo", Replace("/srv/nfs rw,", "/srv/nfs ro,"), "expected rw, actual ro"),
    ("ceph.answers", "", STORAGE, "ceph", TIMED_OUT, "expected an answer of the monitors within 15 s, actual none"),
    ("ceph.answers", "", STORAGE, "ceph", Says("status 1\n"), "actual none (exit status 1)"),
    ("ceph.health", "", STORAGE, " -s ",
     Says('{"health":{"status":"HEALTH_WARN","checks":{"OSD_DOWN":{"summary":{"message":"1 osds down"}}}},"osdmap":'
          '{"num_osds":1,"num_up_osds":0,"num_in_osds":1},"pgmap":{"pgs_by_state":[]},"fsmap":{"by_rank":[]}}\nstatus 0\n'),
     "expected HEALTH_OK, actual HEALTH_WARN: OSD_DOWN (1 osds down)"),
    ("ceph.health", "", STORAGE, " -s ", Replace('"status":"HEALTH_OK"', '"status":"HEALTH_ERR"'), "actual HEALTH_ERR: no reason given"),
    ("ceph.health", "", STORAGE, " -s ", Replace("MGR_MODULE_ERROR", "OSD_NEARFULL"), "OSD_NEARFULL (10 mgr modules have failed, muted)"),
    ("ceph.health", "", STORAGE, " -s ", Replace(',"muted":true', ""), "HEALTH_OK: MGR_MODULE_ERROR (10 mgr modules have failed)"),
    ("ceph.osds", "", STORAGE, " -s ", Replace('"num_up_osds":1', '"num_up_osds":0'), "expected 1 up, 1 in, actual 0 up, 1 in"),
    ("ceph.osds", "", STORAGE, " -s ", Replace('"num_osds":1', '"num_osds":0'), "expected OSDs, actual none"),
    ("ceph.placement_groups", "", STORAGE, " -s ", Replace("active+clean", "active+undersized"), "active+undersized"),
    ("ceph.metadata_server", "", STORAGE, " -s ", Replace("up:active", "up:replay"), "expected an active metadata server"),
    ("ceph.pool_size", "", STORAGE, "osd dump", Replace('"size":1,', '"size":3,'), "expected 1, actual 3"),
    ("ceph.pool_size", "", STORAGE, "osd dump", Replace("rackfs_", "otherfs_"), "expected pools rackfs_*, actual none"),
    ("mount.mounted", "nfs-tcp", GPU, "mountinfo", Lines("/mnt/nfs-tcp"), "expected nfs4, actual not mounted"),
    ("mount.mounted", "local", GPU, "mountinfo", Replace("- ext4 /dev/nvme0n1", "- xfs /dev/nvme0n1"), "expected ext4, actual xfs"),
    ("mount.source", "local", GPU, "readlink", Says("/dev/nvme9n1\n"), "expected /dev/nvme9n1, actual /dev/nvme0n1"),
    ("mount.source", "nfs-tcp", GPU, "mountinfo", Replace("10.77.0.11:/srv/nfs", "10.77.0.99:/srv/nfs"),
     "expected 10.77.0.11:/srv/nfs, actual 10.77.0.99:/srv/nfs"),
    ("mount.source", "nfs-rdma", GPU, "mountinfo", Replace(":/srv/nfs", ":/srv/old"), "actual 10.77.0.11:/srv/old"),
    ("mount.source", "cephfs", GPU, "mountinfo", Replace(".rackfs=", ".otherfs="), "expected rackfs, actual otherfs"),
    ("mount.options", "nfs-tcp", GPU, "mountinfo", Replace(",hard,", ",soft,"),
     "hard: expected in force, actual soft; soft: expected not in force, actual in force"),
    ("mount.options", "nfs-rdma", GPU, "mountinfo", Replace("proto=rdma", "proto=tcp"),
     "proto=rdma: expected in force, actual proto=tcp"),
    ("mount.options", "local", GPU, "mountinfo", Replace("/mnt/local rw,", "/mnt/local ro,"), "ro: expected not in force"),
    ("mount.options", "local", GPU, "mountinfo", Replace("ext4 /dev/nvme0n1 rw", "ext4 /dev/nvme0n1 ro"),
     "rw: expected in force, actual ro"),
    ("mount.options", "cephfs", GPU, "mountinfo", Replace("noatime", "relatime"), "noatime: expected in force"),
    ("mount.transport", "nfs-rdma", GPU, "mountstats", Replace("xprt:\trdma", "xprt:\ttcp"), "expected rdma, actual tcp"),
    ("mount.transport", "nfs-tcp", GPU, "mountstats", OnceReplaced("xprt:\ttcp", "xprt:\trdma"), "expected tcp, actual rdma, tcp"),
    ("mount.connections", "nfs-tcp", GPU, "mountstats", one_connection, "expected 4, actual 1"),
    ("mount.answers", "nfs-tcp", GPU, "/mnt/nfs-tcp", TIMED_OUT, "expected an answer of /mnt/nfs-tcp within 5 s, actual none"),
    ("mount.answers", "nfs-tcp", GPU, "/mnt/nfs-tcp",
     Says("stat: cannot read file system information for '/mnt/nfs-tcp': Stale file handle\nstatus 1\n"), "Stale file handle"),
    ("mount.answers", "cephfs", GPU, "/mnt/cephfs", Says("4194304 0 0\nstatus 0\n"), "actual 0 bytes"),
    ("mount.free", "local", GPU, "/mnt/local", Says("4096 1011640 1000\nstatus 0\n"), "at least 0.5 GB free, actual 0.00 GB"),
    ("gpu.count", "", GPU, SMI, no_gpu_7, "GPUs: expected 8, actual 7"),
    ("gpu.count", "", GPU, SMI, Replace("<attached_gpus>8<", "<attached_gpus>9<"), "actual 1 missing"),
    ("gpu.model", "", GPU, SMI, OnceReplaced("NVIDIA H200 (simulated)", "NVIDIA H100"), "NVIDIA H100 on 00000000:18:00.0"),
    ("gpu.memory", "", GPU, SMI, OnceReplaced("<total>143771 MiB", "<total>81559 MiB"), "expected 143771 on 8 GPUs, actual 81559"),
    ("gpu.driver", "", GPU, SMI, Replace("<driver_version>580", "<driver_version>570"), "expected 580.95.05, actual 570.95.05"),
    ("gpu.ecc_mode", "", GPU, SMI, OnceReplaced("<current_ecc>Enabled", "<current_ecc>Disabled"), "actual Disabled on"),
    ("gpu.ecc_errors", "", GPU, SMI, OnceReplaced("<dram_uncorrectable>0<", "<dram_uncorrectable>2<"), "expected 0 on 8 GPUs, actual 2"),
    ("gpu.row_remapping", "", GPU, SMI, OnceReplaced("<remapped_row_pending>No", "<remapped_row_pending>Yes"), "actual pending"),
    ("gpu.row_remapping", "", GPU, SMI, OnceReplaced("<remapped_row_failure>No", "<remapped_row_failure>Yes"), "actual failed"),
    ("gpu.persistence", "", GPU, SMI, OnceReplaced("<persistence_mode>Enabled", "<persistence_mode>Disabled"), "actual Disabled"),
    ("gpu.pcie_generation", "", GPU, SMI, OnceReplaced("<current_link_gen>5", "<current_link_gen>3"), "expected 5 on 8 GPUs, actual 3"),
    ("gpu.pcie_width", "", GPU, SMI, OnceReplaced("<current_link_width>16x", "<current_link_width>8x"), "actual 8 on 00000000:18:00.0"),
    ("gpu.topology", "", GPU, SMI, weaker_link, "GPU2–GPU5 NV17 instead of NV18"),
    ("gpu.topology", "", GPU, SMI, OnceReplaced("GPU3\tNV18", "GPU3\tSYS"), "GPU0–GPU3 NV18 one way and none the other"),
    ("gpu.topology", "", GPU, SMI, no_row_of_gpu_7, "expected 8 GPUs as in nvswitch-8-nv18, actual 7"),
    ("gpu.healthy", "", GPU, SMI, OnceReplaced("<gpu_recovery_action>None", "<gpu_recovery_action>Reset"), "asks for Reset"),
    ("gpu.healthy", "", GPU, SMI, OnceReplaced("0 KB/s</tx_util>", "Unknown Error</tx_util>"), "Unknown Error"),
    ("gpu.healthy", "", GPU, SMI, Replace("</nvidia_smi_log>\n", "</nvidia_smi_log>\nWARNING: infoROM is corrupted at gpu 0\n"),
     "infoROM is corrupted"),
    ("tools.present", "ib_write_bw", GPU, "command -v", Replace(" /usr/bin/ib_write_bw", " "), "actual not found"),
    ("tools.starts", "fio", GPU, "fio --version",
     Says("fio: error while loading shared libraries: libaio.so.1: cannot open shared object file\nstatus 127\n"), "exit status 127"),
    ("tools.starts", "ib_write_bw", GPU, "ib_write_bw --version", Says("Segmentation fault\nstatus 139\n"), "exit status 139"),
    ("tools.mpi4py", "", GPU, "mpi4py", Says("ModuleNotFoundError: No module named 'mpi4py'\nstatus 1\n"), "No module named"),
]  # fmt: skip
