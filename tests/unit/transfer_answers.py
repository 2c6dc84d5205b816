"""Answers of clients of parallel file systems about their transport and their bytes.

Forms: lustre-discuss of April 2018 (``osc.*.stats`` has the form of ``llite.*.stats``), Linux 6.12's
``fs/ceph/debugfs.c``, IBM's description of ``mmpmon fs_io_s -p``; the values are ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from rackproof.core.architecture import Storage
from rackproof.parse.parallel_fs import DFUSE_END

NETWORK = {"rdma": "o2ib", "tcp": "tcp"}
FSID = "6a5f0c3e-9d4b-4a53-8f0e-0d6a9b1c2d3e"


def source_of(storage: Storage, servers: Sequence[str] = ("10.60.66.11", "10.60.66.12")) -> str:
    """Source of the mount."""
    return {
        "ceph": f"client@{FSID}.{storage.source}=/",
        "lustre": f"{','.join(f'{server}@o2ib' for server in servers)}:/{storage.source}",
        "fuse.daos": "dfuse",
    }.get(storage.fstype, storage.source)


def dfuse(storage: Storage) -> str:
    pool, _, container = storage.source.partition("/")
    words = ["dfuse", "-m", storage.mountpoint, "--pool", pool, "--container", container]
    return "\n".join(["process 4711", *(f"argument {word}" for word in words), DFUSE_END])


def transport(fstype: str, used: str) -> str:
    """``used``: the transport of all connections, or several with a blank between them."""
    several = used.split()
    match fstype:
        case "lustre":
            return "".join(
                f"osc.lfs01-OST{number:04}-osc-ffff8c2f41d3a800.import=\nimport:\n"
                f"    target: lfs01-OST{number:04}_UUID\n    state: FULL\n    connection:\n"
                f"       current_connection: 10.60.66.1{number}@{NETWORK[one]}\n"
                for number, one in enumerate(several)
            )
        case "beegfs":
            connections = "".join(f" {one.upper()}: 8 (10.60.67.11:8003);" for one in several) or " <none>"
            return f"storage-01 [ID: 11]\n   Connections:{connections}\n"
        case "gpfs":
            return f"VERBS RDMA status: {'started' if several == ['rdma'] else 'stopped'}\n"
        case "wekafs":
            return "".join("DPDK / RDMA\n" if one == "rdma" else "DPDK\n" for one in several)
        case "fuse.daos":
            return "".join(f"    provider: ofi+{'verbs;ofi_rxm' if one == 'rdma' else 'tcp'}\n" for one in several)
    return "" if fstype == "ceph" else "its client does not tell the transport\n"


def counters(fstype: str, name: str, read: int, written: int) -> str | None:
    """None: the client has no counters."""
    match fstype:
        case "lustre":
            lines = ["snapshot_time             1732190000.123456789 secs.nsecs"]
            lines += ["req_waittime              812 samples [usecs] 31 40411 1209381 8132321231"]
            lines += [f"{key}                812 samples [bytes] 4096 4194304 {count} 812321231" for key, count in
                      (("read_bytes", read), ("write_bytes", written)) if count]  # fmt: skip
            ost = [f"osc.{name}-OST0000-osc-ffff8c2f41d3a800.stats=", *lines]
            mdt = [f"mdc.{name}-MDT0000-mdc-ffff8c2f41d3a800.stats=", lines[0]]
            return "\n".join([*ost, *mdt, ""])
        case "ceph":
            table = [
                "item          total       avg_sz(bytes)   min_sz(bytes)   max_sz(bytes)  total_sz(bytes)",
                "-" * 88,
                f"read          {read // 4096:<12}4096            4096            4194304         {read}",
                f"write         {written // 4096:<12}4096            4096            4194304         {written}",
            ]
            path = f"/sys/kernel/debug/ceph/{FSID}.client4242/metrics/size"
            return "".join(f"{path}:{line}\n" for line in table)
        case "gpfs":
            return (
                f"_fs_io_s_ _n_ 10.60.68.1 _nn_ gpu-01 _rc_ 0 _t_ 1732190000 _tu_ 53212 _cl_ c.example _fs_ {name}"
                f" _d_ 48 _br_ {read} _bw_ {written} _oc_ 9 _cc_ 8 _rdc_ 7 _wc_ 6 _dir_ 5 _iu_ 4\n"
            )
    return None


def nfs_ports(kernel: tuple[int, int], rdma: tuple[int, int] | None) -> str:
    """Bytes received and sent by the node of an NFS mount; None: it has no RDMA device."""
    net, device = "/sys/class/net/eth0/device/net/eth0/statistics", "/sys/class/infiniband/mlx5_0/device/infiniband"
    rows = {f"{net}/rx_bytes": kernel[0], f"{net}/tx_bytes": kernel[1]}
    rows |= {f"/sys/class/net/lo/statistics/{way}_bytes": 4711 for way in ("rx", "tx")}
    if rdma:
        port = f"{device}/mlx5_0/ports/1"
        rows |= {f"{port}/counters/port_rcv_data": rdma[0] // 4, f"{port}/counters/port_xmit_data": rdma[1] // 4}
        return "".join(f"{path}:{count}\n" for path, count in rows.items()) + f"{port}/link_layer:Ethernet\n"
    return "".join(f"{path}:{count}\n" for path, count in rows.items())


def ports(kernel: tuple[int, int], wire: tuple[int, int] | None, rdma: tuple[int, int] | None) -> str:
    """Bytes received and sent; None: nothing counts them."""
    net, device = "/sys/class/net/eth0/statistics", "/sys/class/infiniband/mlx5_0/ports/1/counters"
    lines = [f"{net}/rx_bytes:{kernel[0]}", f"{net}/tx_bytes:{kernel[1]}"]
    lines += [f"ethtool/eth0/rx_bytes_phy:{wire[0]}", f"ethtool/eth0/tx_bytes_phy:{wire[1]}"] if wire else []
    lines += [f"{device}/port_xmit_data:{rdma[1] // 4}", f"{device}/port_rcv_data:{rdma[0] // 4}"] if rdma else []
    return "".join(f"{line}\n" for line in lines)
