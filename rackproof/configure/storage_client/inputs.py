"""The inventory's mapping ``storage_client``: how storage clients are set up.

The architecture (``storage``) declares what is mounted, from where and over which transport. This mapping has what
depends on the site: sources of vendors' software, names, the NICs of clients.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints, model_validator

from rackproof.configure.inputs import Digest, Download, Repository, SecretSource
from rackproof.configure.settings import Inputs
from rackproof.core.texts import Host, Interface, MountSource, Name, Option, Path, Version

BuildOption = Annotated[str, StringConstraints(pattern=r"^--?[A-Za-z0-9][A-Za-z0-9._=/+-]*$")]
Nic = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")]
VerbsPort = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*(/[0-9]+){0,2}$")]


class Cache(Inputs):
    """cachefilesd, the local cache of NFS mounts with ``fsc``. Limits are percentages of the cache's drive."""

    directory: Path = "/var/cache/fscache"
    """On a file system with extended attributes. Default: cachefilesd's own; DeepOps puts it on /raid of a DGX."""
    tag: Name = "rackproof"
    """Name of the cache in /proc/fs/fscache/caches."""
    brun: int = Field(default=25, ge=1, le=99)
    """Blocks free above which nothing is evicted. Defaults of all six: DeepOps, roles/cachefilesd."""
    bcull: int = Field(default=10, ge=1, le=99)
    """Blocks free below which the oldest are evicted."""
    bstop: int = Field(default=3, ge=0, le=99)
    """Blocks free below which nothing more is cached."""
    frun: int = Field(default=10, ge=1, le=99)
    """As brun, for the number of free inodes."""
    fcull: int = Field(default=7, ge=1, le=99)
    """As bcull, for inodes."""
    fstop: int = Field(default=3, ge=0, le=99)
    """As bstop, for inodes."""

    @model_validator(mode="after")
    def _ordered(self) -> Cache:
        if not (self.bstop < self.bcull < self.brun and self.fstop < self.fcull < self.frun):
            raise ValueError("cachefilesd requires stop < cull < run, for blocks and for files")
        return self


class Nfs(Inputs):
    """NFS, with the kernel's client or a vendor's multipath client."""

    driver: Literal["kernel", "vastnfs", "dellnfs"] = "kernel"
    """``vastnfs``: VAST's client; ``dellnfs``: PowerScale's multipath client. Both replace sunrpc and dependent
    modules."""
    bundle: Download | None = None
    """Source of the vendor's client (tar); its ``build.sh bin`` builds it for the running kernel."""
    package: Download | None = None
    """Instead of the bundle: a package that was built for exactly the running kernel."""
    version: Version | Literal[""] = ""
    """Required prefix of /sys/module/sunrpc/parameters/nfs_bundle_version, e.g. ``4.0.35``."""
    build_options: tuple[BuildOption, ...] = ()
    """Options of ``build.sh bin``: ``--no-ofed`` with the kernel's own RDMA stack (VAST's documentation)."""
    remoteports: Literal["addresses", "dns"] | None = "addresses"
    """Addresses behind one mount: those of the architecture, or those that the server's name resolves to."""
    local_ports: tuple[Host, ...] = ()
    """localports: source interfaces or addresses of the connections (VAST)."""
    spread_reads: bool = True
    """One file's reads go over all connections (vastnfs 4.0.16 and later)."""
    spread_writes: bool = True
    """One file's writes go over all connections (vastnfs 4.0.16 and later)."""
    cache: Cache = Cache()
    slot_table_entries: int | None = Field(default=None, ge=2, le=65536)
    """sunrpc.tcp_max_slot_table_entries: requests in flight on one connection. None: the kernel's default, which grows
    to 65536. Azure's images set 128."""
    rdma_slot_table_entries: int | None = Field(default=None, ge=2, le=16384)
    """sunrpc.rdma_slot_table_entries. None: the kernel's default, 128."""
    statd_port: int | None = Field(default=None, ge=1, le=65535)
    """NFSv3 with locks: port of rpc.statd, for firewalls. None: any."""
    lockd_port: int | None = Field(default=None, ge=1, le=65535)
    """NFSv3 with locks: TCP and UDP port of lockd."""


class Weka(Inputs):
    """WEKA's stateless client."""

    install_port: int = 14000
    """Port of a backend that serves ``/dist/v1/install`` (WEKA's documentation)."""
    install_sha256: Digest | Literal[""] = ""
    """SHA-256 of that script, which depends on the cluster's version. Review the script, then take its sha256sum."""
    version: Version | Literal[""] = ""
    """Required output of ``weka version current``; empty: the cluster's version."""
    net: tuple[Nic, ...] = ()
    """NICs of the client, each ``NAME`` or ``NAME/IP/BITS/GATEWAY``, per node. ``udp``: without DPDK."""
    num_cores: int = Field(default=1, ge=0, le=19)
    """Cores that only poll for WEKA; must be 0 with ``udp``."""
    cores: tuple[int, ...] = ()
    """Instead of num_cores: cores by the kernel's numbers. Required with Slurm, which must not give them to jobs
    (``slurm.cpu_spec_list``)."""
    memory_mb: int | None = None
    """Huge pages of the client in MiB. None: WEKA's default, 1400 per core."""
    traces_capacity_mb: int = 512
    """MB of disk space for traces (stackhpc's slurm appliance)."""
    cgroups_mode: Name | Literal[""] = "force_v2"
    """WEKA_CGROUPS_MODE during the installation (stackhpc's slurm appliance); empty: not set."""
    isolate_cpusets: bool = False
    """WEKA removes its cores from all other cpusets, which breaks Slurm's cgroups (stackhpc's slurm appliance)."""
    mount_timeout_s: int = 240
    """Seconds for mounting: the first mount downloads and starts the client (stackhpc's slurm appliance)."""

    @model_validator(mode="after")
    def _modes(self) -> Weka:
        if "udp" in self.net and (self.num_cores or self.cores or len(self.net) > 1):
            raise ValueError("net udp must be the only NIC, with num_cores 0 and no cores")
        return self


class Lustre(Inputs):
    """Lustre and its network, LNet."""

    repository: Repository | None = None
    packages: dict[Name, Version | Literal[""]] = Field(default_factory=dict)
    """Exact versions by name (empty: any). Default by family: ``kmod-lustre-client``, ``lustre-client`` (RHEL) and
    ``lustre-client-modules-KERNEL``, ``lustre-client-utils`` (Debian)."""
    source: Download | None = None
    """Sources (tar) to build from instead, e.g. with DOCA, for which no package exists."""
    ofed: Path = "/usr/src/ofa_kernel/default"
    """Folder of DOCA's kernel headers; the build uses them if they exist (``--with-o2ib``)."""
    interfaces: tuple[Interface, ...] = ()
    """Network interfaces of LNet; empty: the fabric's rails."""
    network: Option | Literal[""] = ""
    """LNet's name of the network; empty: ``o2ib`` for rdma, ``tcp`` for tcp."""
    peer_timeout: int = 180
    """o2ib: seconds. Defaults of the six: DDN's EXAScaler client configuration. They must match the servers'."""
    peer_credits: int = 32
    """o2ib: requests in flight to one peer."""
    credits: int = 256
    """o2ib: requests in flight to all peers."""
    peercredits_hiw: int = 16
    """o2ib: high-water mark of credits, from which they are returned to the peer at once."""
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
    packages: dict[Name, Version | Literal[""]] = Field(default_factory=dict)
    """Exact versions by name. Default for 8: beegfs-client, beegfs-tools; for 7: beegfs-client, beegfs-helperd,
    beegfs-utils; with RDMA also libbeegfs-ib."""
    auth: SecretSource | None = None
    """The shared secret of the file system (conn.auth)."""
    auth_disabled: bool = False
    """The file system has no shared secret. Must be explicit: BeeGFS refuses to start without either."""
    mgmtd_port: int = 8008
    """Port of the management service. Default: that of BeeGFS."""
    client_port: int = 8004
    """UDP port of the client. Default: that of BeeGFS."""
    interfaces: tuple[Interface, ...] = ()
    """connInterfacesFile: interfaces in the order of preference; empty: all."""
    rdma_interfaces: tuple[Interface, ...] = ()
    """connRDMAInterfacesFile: interfaces that are used at the same time (7.3.0 and later)."""
    max_internode_num: int = 12
    """connMaxInternodeNum. Default: that of BeeGFS; NetApp sets 128."""
    rdma_buf_num: int = 70
    """connRDMABufNum. Default: that of BeeGFS; NetApp sets 36."""
    rdma_buf_size: int = 8192
    """connRDMABufSize in bytes. Default: that of BeeGFS; NetApp sets 65536."""
    rdma_tos: int | None = Field(default=None, ge=0, le=255)
    """connRDMATypeOfService. None: ``tos`` of a RoCE fabric, otherwise the default of BeeGFS, 0."""
    ofed: Path = "/usr/src/ofa_kernel/default"
    """Folder of DOCA's kernel headers; the module is built against them if they exist."""
    gds: bool = False
    """Build with NVIDIA's headers for GPUDirect Storage."""
    nvidia_source: Path | Literal[""] = ""
    """NVIDIA_INCLUDE_PATH, e.g. ``/usr/src/nvidia-580.95.05/nvidia``."""
    nvfs_source: Path | Literal[""] = ""
    """NVFS_INCLUDE_PATH, e.g. ``/usr/src/nvidia-fs-2.26.6``."""


class Scale(Inputs):
    """IBM Storage Scale."""

    repository: Repository | None = None
    version: Version | Literal[""] = ""
    """Version of all packages, e.g. ``5.2.3-1``."""
    packages: tuple[Name, ...] = (
        "gpfs.base", "gpfs.gpl", "gpfs.gskit", "gpfs.msg.en_US", "gpfs.compression", "gpfs.license.std",
    )  # fmt: skip
    """Packages, with the licence package of your edition. Default: IBM's Ansible roles, core_install."""
    join: Literal["none", "cluster", "remote"] = "none"
    """``cluster``: nodes join the cluster that owns the file system; ``remote``: nodes join an existing cluster of
    their own, which mounts the file system from the owning one; ``none``: nodes are joined by other means, and only
    checked."""
    admin_node: Host | Literal[""] = ""
    """Member of the cluster that adds nodes; nodes must reach it with root's ssh key."""
    remote_cluster: Host | Literal[""] = ""
    """remote: name of the owning cluster."""
    remote_contacts: tuple[Host, ...] = ()
    """remote: contact nodes of the owning cluster."""
    remote_key: Download | None = None
    """remote: the owning cluster's public key."""
    remote_device: MountSource | Literal[""] = ""
    """remote: the file system's name in the owning cluster; empty: the same."""
    verbs_ports: tuple[VerbsPort, ...] = ()
    """verbsPorts, e.g. ``mlx5_0/1``; the same devices as rdma_dev_addr_list of GPUDirect Storage."""
    verbs_rdma_cm: Literal["enable", "disable"] = "disable"
    """enable for RoCE (IBM)."""
    gds: bool = False
    """verbsGPUDirectStorage=yes."""


class CephFs(Inputs):
    """CephFS of an external cluster. A cluster that the kit sets up needs no inputs."""

    fsid: Name | Literal[""] = ""
    """FSID of the cluster (``ceph fsid``)."""
    user: Name = "rackproof"
    """Ceph user without ``client.``. Default: the user that the kit creates on its own cluster."""
    secret: SecretSource | None = None
    """The user's key."""
    ms_mode: Literal["legacy", "crc", "secure", "prefer-crc", "prefer-secure"] = "prefer-crc"
    """Messenger mode. Default: version 2 with checksums, as the cluster's default; the kernel's default is version
    1."""
    source: Literal["cluster", "monitors"] = "cluster"
    """How mounts name the file system: ``user@fsid.name=/``, which mount.ceph knows since Ceph 17, or ``monitors:/``
    for Ceph 16 (Debian 12)."""


class Daos(Inputs):
    """DAOS: the agent, and dfuse."""

    repository: Repository | None = None
    packages: dict[Name, Version | Literal[""]] = Field(default_factory=lambda: {"daos-client": ""})
    """Exact versions by name (empty: any)."""
    port: int = 10001
    """Port of the access points. Default: that of DAOS."""
    system: Name = "daos_server"
    """Name of the DAOS system. Default: that of DAOS."""
    insecure: bool = False
    """True: no certificates. Must be explicit."""
    interfaces: tuple[Interface, ...] = ()
    """include_fabric_ifaces: interfaces that clients may use; empty: all suitable ones."""
    threads: int | None = Field(default=None, ge=1)
    """dfuse --thread-count."""
    multi_user: bool = True
    """One dfuse for all users of the node (Google's toolkit)."""
    caching: bool = True
    """False: dfuse --disable-caching, for files that several nodes write. Default: that of dfuse."""


class StorageClientInputs(Inputs):
    """The inventory's mapping ``storage_client``."""

    KEY: ClassVar = "storage_client"
    DOWNLOADS: ClassVar = True

    nfs: Nfs = Nfs()
    weka: Weka = Weka()
    lustre: Lustre = Lustre()
    beegfs: BeeGfs = BeeGfs()
    scale: Scale = Scale()
    cephfs: CephFs = CephFs()
    daos: Daos = Daos()
