"""How storage clients are set up: the mapping ``storage_clients`` in the inventory's data.

*What* is mounted, from where and over which transport is in the architecture (``storage``); here is what only the
site knows: where vendors' files are, their names, which NIC a client uses.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from rackproof.configure.inputs import Download, Repository, SecretSource
from rackproof.configure.settings import Inputs


class Cache(Inputs):
    """cachefilesd: what NFS mounts with ``fsc`` keep on a local drive. Percentages of that drive."""

    directory: str = "/var/cache/fscache"
    """On a file system with extended attributes. Default: cachefilesd's own; DeepOps puts it on /raid of a DGX."""
    tag: str = "rackproof"
    """Name of the cache in /proc/fs/fscache/caches."""
    brun: int = Field(default=25, ge=1, le=99)
    """Blocks free above which nothing is evicted. Defaults of all six: DeepOps, roles/cachefilesd."""
    bcull: int = Field(default=10, ge=1, le=99)
    """Blocks free below which the oldest are evicted."""
    bstop: int = Field(default=3, ge=0, le=99)
    """Blocks free below which nothing more is cached."""
    frun: int = Field(default=10, ge=1, le=99)
    """As brun, of the files that the cache's file system can still make."""
    fcull: int = Field(default=7, ge=1, le=99)
    """As bcull, of files."""
    fstop: int = Field(default=3, ge=0, le=99)
    """As bstop, of files."""

    @model_validator(mode="after")
    def _ordered(self) -> Cache:
        if not (self.bstop < self.bcull < self.brun and self.fstop < self.fcull < self.frun):
            raise ValueError("cachefilesd wants stop < cull < run, for blocks and for files")
        return self


class Nfs(Inputs):
    """NFS, by the kernel's client or by a vendor's multipath client in its place."""

    driver: Literal["kernel", "vastnfs", "dellnfs"] = "kernel"
    """``vastnfs``: VAST's client; ``dellnfs``: PowerScale's multipath client. Both replace sunrpc and its users."""
    bundle: Download | None = None
    """Source of the vendor's client (tar), which is built for the running kernel with its own ``build.sh bin``."""
    package: Download | None = None
    """Instead of the bundle: a package that was built for exactly the running kernel."""
    version: str = ""
    """What /sys/module/sunrpc/parameters/nfs_bundle_version begins with, e.g. ``4.0.35``."""
    build_options: tuple[str, ...] = ()
    """For ``build.sh bin``: ``--no-ofed`` with the kernel's own RDMA stack (VAST's documentation)."""
    remoteports: Literal["addresses", "dns"] | None = "addresses"
    """Several addresses behind one mount: those of the architecture, or those that the server's name resolves to."""
    local_ports: tuple[str, ...] = ()
    """localports: interfaces or addresses of this node that the connections go out from (VAST)."""
    spread_reads: bool = True
    """One file's reads go over all connections (vastnfs 4.0.16 and later)."""
    spread_writes: bool = True
    """One file's writes go over all connections (vastnfs 4.0.16 and later)."""
    cache: Cache = Cache()
    slot_table_entries: int | None = Field(default=None, ge=2, le=65536)
    """sunrpc.tcp_max_slot_table_entries: requests in flight on one connection. None: the kernel's own, which grows to
    65536. Azure's images set 128."""
    rdma_slot_table_entries: int | None = Field(default=None, ge=2, le=16384)
    """sunrpc.rdma_slot_table_entries. None: the kernel's own 128."""
    statd_port: int | None = Field(default=None, ge=1, le=65535)
    """NFSv3 with locks: port of rpc.statd, for firewalls. None: any."""
    lockd_port: int | None = Field(default=None, ge=1, le=65535)
    """NFSv3 with locks: TCP and UDP port of lockd."""


class Weka(Inputs):
    """WEKA's stateless client."""

    install_port: int = 14000
    """Port of a backend that serves ``/dist/v1/install`` (WEKA's documentation)."""
    install_sha256: str = ""
    """SHA-256 of that script, which depends on the cluster's version. Read it first, then take its sha256sum."""
    version: str = ""
    """What ``weka version current`` must print; empty: the cluster's."""
    net: tuple[str, ...] = ()
    """NICs of the client, each ``NAME`` or ``NAME/IP/BITS/GATEWAY``; a node's own. ``udp``: without DPDK."""
    num_cores: int = Field(default=1, ge=0, le=19)
    """Cores that poll for WEKA alone; 0 goes with ``udp``."""
    cores: tuple[int, ...] = ()
    """Instead of num_cores: cores by the kernel's numbers. Required beside Slurm, which must not give them to jobs
    (``slurm.cpu_spec_list``)."""
    memory_mb: int | None = None
    """Huge pages of the client in MiB. None: WEKA's own 1400 a core."""
    traces_capacity_mb: int = 512
    """Room for traces (stackhpc's slurm appliance)."""
    cgroups_mode: str = "force_v2"
    """WEKA_CGROUPS_MODE while installing (the same); empty: not set."""
    isolate_cpusets: bool = False
    """WEKA removes its cores from all other cpusets, which breaks Slurm's cgroups (the same)."""
    mount_timeout_s: int = 240
    """The first mount downloads and starts the client: minutes (the same)."""

    @model_validator(mode="after")
    def _modes(self) -> Weka:
        if "udp" in self.net and (self.num_cores or self.cores or len(self.net) > 1):
            raise ValueError("net udp goes alone, with num_cores 0 and no cores")
        if self.install_sha256 and len(self.install_sha256) != 64:
            raise ValueError("install_sha256: expected 64 hexadecimal digits")
        return self


class Lustre(Inputs):
    """Lustre and its network, LNet."""

    repository: Repository | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    """Name to exact version (empty: any). Default by family: ``kmod-lustre-client``, ``lustre-client`` (RHEL) and
    ``lustre-client-modules-KERNEL``, ``lustre-client-utils`` (Debian)."""
    source: Download | None = None
    """Sources (tar) to build from instead: for DOCA no matching package exists."""
    ofed: str = "/usr/src/ofa_kernel/default"
    """Where DOCA's kernel headers are; the build uses them when they are there (``--with-o2ib``)."""
    interfaces: tuple[str, ...] = ()
    """Network interfaces of LNet; none: the fabric's rails."""
    network: str = ""
    """LNet's name of the network; empty: ``o2ib`` for rdma, ``tcp`` for tcp."""
    peer_timeout: int = 180
    """o2ib: seconds. Defaults of the six: DDN's EXAScaler client configuration. They must match the servers'."""
    peer_credits: int = 32
    """o2ib: requests in flight to one peer."""
    credits: int = 256
    """o2ib: requests in flight to all peers."""
    peercredits_hiw: int = 16
    """o2ib: credits that are kept back before they are returned to the peer at once."""
    concurrent_sends: int = 64
    """o2ib: work requests posted to one peer."""
    ntx: int = 512
    """o2ib: transmit descriptors."""
    discovery: bool = True
    """False: lnet_peer_discovery_disabled=1."""
    skip_mr_route_setup: bool = False
    """True: ksocklnd adds no routing rules of its own for several interfaces (Oracle's images)."""


class BeeGfs(Inputs):
    """BeeGFS client 7 or 8."""

    version: Literal[7, 8] = 8
    """Major version, which determines packages and tools. Default: 8, the current one."""
    repository: Repository | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    """Name to exact version. Default: 8: beegfs-client, beegfs-tools; 7: beegfs-client, beegfs-helperd, beegfs-utils;
    with RDMA also libbeegfs-ib."""
    auth: SecretSource | None = None
    """The shared secret of the file system (conn.auth)."""
    auth_disabled: bool = False
    """The file system has no shared secret. Must be explicit: BeeGFS refuses to start without either."""
    mgmtd_port: int = 8008
    """Port of the management service. Default: BeeGFS's own."""
    client_port: int = 8004
    """UDP port of the client. Default: BeeGFS's own."""
    interfaces: tuple[str, ...] = ()
    """connInterfacesFile: in the order of preference; none: all."""
    rdma_interfaces: tuple[str, ...] = ()
    """connRDMAInterfacesFile: interfaces over which several rails are used at once (7.3.0 and later)."""
    max_internode_num: int = 12
    """connMaxInternodeNum. BeeGFS's own; NetApp sets 128."""
    rdma_buf_num: int = 70
    """connRDMABufNum. BeeGFS's own; NetApp 36."""
    rdma_buf_size: int = 8192
    """connRDMABufSize in bytes. BeeGFS's own; NetApp 65536."""
    rdma_tos: int | None = Field(default=None, ge=0, le=255)
    """connRDMATypeOfService. None: the fabric's ``tos`` where it is RoCE, else BeeGFS's own 0."""
    ofed: str = "/usr/src/ofa_kernel/default"
    """The module is built against DOCA's headers when they are there."""
    gds: bool = False
    """Build with NVIDIA's headers for GPUDirect Storage."""
    nvidia_source: str = ""
    """NVIDIA_INCLUDE_PATH, e.g. ``/usr/src/nvidia-580.95.05/nvidia``."""
    nvfs_source: str = ""
    """NVFS_INCLUDE_PATH, e.g. ``/usr/src/nvidia-fs-2.26.6``."""


class Scale(Inputs):
    """IBM Storage Scale."""

    repository: Repository | None = None
    version: str = ""
    """Of all packages, e.g. ``5.2.3-1``."""
    packages: tuple[str, ...] = (
        "gpfs.base", "gpfs.gpl", "gpfs.gskit", "gpfs.msg.en_US", "gpfs.compression", "gpfs.license.std",
    )  # fmt: skip
    """IBM's Ansible roles, core_install; the licence package of your edition."""
    join: Literal["none", "cluster", "remote"] = "none"
    """``cluster``: the nodes become members of the owning cluster; ``remote``: their own cluster, which exists, mounts
    the file system from another; ``none``: joined by other means, and the node is only checked."""
    admin_node: str = ""
    """A member of the cluster on which the node is added, reachable from it with root's ssh key."""
    remote_cluster: str = ""
    """remote: name of the owning cluster."""
    remote_contacts: tuple[str, ...] = ()
    """remote: contact nodes of the owning cluster."""
    remote_key: Download | None = None
    """remote: the owning cluster's public key."""
    remote_device: str = ""
    """remote: the file system's name there; empty: the same."""
    verbs_ports: tuple[str, ...] = ()
    """verbsPorts, e.g. ``mlx5_0/1``; the same devices as rdma_dev_addr_list of GPUDirect Storage."""
    verbs_rdma_cm: Literal["enable", "disable"] = "disable"
    """enable for RoCE (IBM)."""
    gds: bool = False
    """verbsGPUDirectStorage=yes."""


class CephFs(Inputs):
    """CephFS of an external cluster. Everything about the architecture's own cluster is derived from it."""

    fsid: str = ""
    """Of the cluster (``ceph fsid``)."""
    user: str = "rackproof"
    """Ceph user without ``client.``. Default: the one that the kit makes on its own cluster."""
    secret: SecretSource | None = None
    """The user's key."""
    ms_mode: Literal["legacy", "crc", "secure", "prefer-crc", "prefer-secure"] = "prefer-crc"
    """Messenger 2 with checksums, the cluster's default; the kernel's is messenger 1."""


class Daos(Inputs):
    """DAOS: the agent, and dfuse."""

    repository: Repository | None = None
    packages: dict[str, str] = Field(default_factory=lambda: {"daos-client": ""})
    """Name to exact version."""
    port: int = 10001
    """Of the access points (DAOS's own)."""
    system: str = "daos_server"
    """Name of the DAOS system (its own default)."""
    insecure: bool = False
    """True: no certificates. Must be explicit."""
    interfaces: tuple[str, ...] = ()
    """include_fabric_ifaces: interfaces that clients may use; none: all that fit."""
    threads: int | None = Field(default=None, ge=1)
    """dfuse --thread-count."""
    multi_user: bool = True
    """One dfuse for all users of the node (Google's toolkit)."""
    caching: bool = True
    """False: dfuse --disable-caching, where several nodes write the same files. Default: dfuse's own."""


class StorageClients(Inputs):
    """``storage_clients``."""

    KEY: ClassVar = "storage_clients"
    DOWNLOADS: ClassVar = True

    nfs: Nfs = Nfs()
    weka: Weka = Weka()
    lustre: Lustre = Lustre()
    beegfs: BeeGfs = BeeGfs()
    scale: Scale = Scale()
    cephfs: CephFs = CephFs()
    daos: Daos = Daos()
