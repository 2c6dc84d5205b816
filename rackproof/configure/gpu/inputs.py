"""The inventory's ``gpu``: how the GPU stack is installed, and what only the site knows.

The architecture declares the rest (driver, persistence, MIG, power limit, GPUDirect, …).
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from rackproof.configure.inputs import Download, Repository
from rackproof.configure.settings import Inputs
from rackproof.core.texts import Host, Name, Option, Path, Value

PackageVersion = Annotated[str, StringConstraints(pattern=r"^[0-9][A-Za-z0-9.+:~^-]*$")]
DriverVersion = Annotated[str, StringConstraints(pattern=r"^[0-9]{3}(\.[0-9]+){0,2}$")]


class Imex(Inputs):
    """NVLink across the nodes of a rack (GB200, GB300)."""

    domain: Name | None = None
    """Name of the NVLink domain, usually the rack: GPU nodes with the same name share memory. Default: one domain of
    all GPU nodes of the inventory, where these have no more GPUs than one NVLink switch system joins (72)."""
    nodes: tuple[Host, ...] = ()
    """Instead: addresses of all nodes of the domain. Default: their ``management_address``, else rail 0 (NVIDIA, IMEX
    guide, deployment models: the list names the compute nodes of one NVLink domain)."""

    @model_validator(mode="after")
    def _one_way(self) -> Imex:
        if self.domain and self.nodes:
            raise ValueError("give either domain or nodes")
        return self


class GpuTools(Inputs):
    """Programs that measure GPUs and that no distribution has, and another MPI than the distribution's, built on GPU
    nodes from archives (``.tar.gz``). All but ``openmpi`` and ``mpi4py`` need CUDA's toolkit on the node
    (``gpu.cuda``). What cannot be built is reported, and the deploy goes on."""

    openmpi: Download | None = None
    """A release of Open MPI (4.1 or newer, with its ``configure``), built in /opt/rackproof/tools/openmpi and not put
    on the PATH. ``nccl_tests`` and ``mpi4py`` are built with it, and built again when it changes; collectives start
    with its mpirun wherever all nodes have it. Default: the distribution's Open MPI."""
    mpi4py: Download | None = None
    """Sources of mpi4py, built with ``openmpi``, which it requires, for the distribution's python3; mpi4py 4 needs
    Cython 3, which Debian 12, Ubuntu 22.04 and RHEL 9 lack: 3.1 there. Default: the distribution's mpi4py."""
    nvbandwidth: Download | None = None
    """Sources of NVIDIA's nvbandwidth, linked as ``/usr/local/bin/nvbandwidth``."""
    nccl_tests: Download | None = None
    """Sources of NVIDIA's nccl-tests, built with MPI and linked from /usr/local/bin; they need NCCL (``gpu.nccl``)."""
    perftest: Download | None = None
    """Sources of perftest, built with CUDA in /opt/rackproof/tools/perftest/bin: the distribution's package, which has
    the same names, cannot reach GPU memory. Benchmarks with GPU memory start these programs. With CUDA 13 releases
    before 26.07 cannot be built (linux-rdma/perftest, pull requests 350, 355 and 376)."""

    @model_validator(mode="after")
    def _with_its_mpi(self) -> GpuTools:
        if self.mpi4py and not self.openmpi:
            raise ValueError("mpi4py needs openmpi: the distribution's package is built against the distribution's MPI")
        return self


class GpuInputs(Inputs):
    """``gpu`` in the inventory's data of a group or node."""

    KEY: ClassVar = "gpu"
    DOWNLOADS: ClassVar = True

    source: Literal["distribution", "cuda"] | None = None
    """Where the driver comes from: the operating system's own packages (Debian's non-free, Ubuntu's restricted), or
    NVIDIA's CUDA repository. Never both: half an upgrade from each is the classic failure. Default: distribution on
    Debian without NVSwitches and without a declared driver, cuda elsewhere (NVIDIA, driver installation guide)."""
    flavour: Literal["auto", "open", "proprietary"] = "auto"
    """Kernel modules. ``auto``: by the GPUs' generation, and open where both work and the branch is 560 or newer
    (the default of NVIDIA's own packages from then on) or DMA-BUF is declared, which only the open ones have."""
    precompiled: bool = False
    """Modules that were built and signed by the distribution (Ubuntu's archive) or the vendor (RHEL, proprietary
    ones), instead of DKMS; Secure Boot accepts them without an enrolled key."""
    driver: DriverVersion | None = None
    """Branch (``580``) or exact version (``580.126.20``). Default: the version set's, else the architecture's."""
    generations: dict[Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{4}$")], Name] = Field(
        default_factory=dict
    )
    """PCI device id: generation, for GPUs that the kit does not know."""
    repository: Repository | None = None
    """Where packages come from without a version set: with ``source: cuda`` all of them, with ``distribution``
    what the distribution lacks (DCGM, CUDA, NCCL, GPUDirect Storage, the container toolkit), and never the driver."""
    hold: bool = True
    """Packages that were installed with a version are held (apt-mark hold, dnf versionlock): unattended upgrades that
    replace a running driver are a common failure."""
    headers: tuple[Name, ...] = ()
    """Packages with the headers of the running kernel. Default: linux-headers-$(uname -r), or kernel-devel."""
    module_options: dict[Option, Value] = Field(default_factory=dict)
    """Options of the module nvidia: ``NVreg_RestrictProfilingToAdminUsers: "0"``. Default: none, the driver's own."""
    persistenced: bool | None = None
    """Whether nvidia-persistenced runs. Default: as the architecture declares, and on where it has no value."""
    fabric_manager: bool | None = None
    """Default: yes with NVSwitches on the PCI bus, and with GPUs whose switches are not on it (NVLink 5). False where
    another service or another machine manages them."""
    imex: Imex = Imex()
    cuda: Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+$")] | None = None
    """CUDA toolkit, ``13.0``. Default: none; jobs bring theirs in containers."""
    nccl: PackageVersion | None = None
    """Version of the packages, with CUDA's: ``2.27.5-1+cuda12.9``. Default: none."""
    dcgm: bool | None = None
    """DCGM 4 and its service. Default: where the architecture declares a diagnosis (``gpu.dcgm_level``), or has
    ``dcgmi`` among its programs and NVIDIA's repository is there."""
    dcgm_cuda: Literal[12, 13] | None = None
    """The CUDA that DCGM's packages are built for. Default: 13 from driver branch 580 on (CUDA 13 needs it)."""
    dcgm_exporter: Name | None = None
    """A unit that profiles GPUs through DCGM all the time. Only one client may profile: where both this and
    ``dcgmi diag`` (``gpu.dcgm_level``, ``profiles.*.gpu.diagnoses``) are declared, plans say so."""
    gdrcopy: bool = False
    """GDRCopy's driver and library."""
    gds_method: Literal["nvidia-fs", "p2pdma"] = "nvidia-fs"
    """How GPUDirect Storage reaches drives: NVIDIA's module, or the kernel's own PCI P2PDMA (local NVMe without RAID0,
    kernel 6.2, open driver 570, CUDA 12.8; NVIDIA, GDS support for NVMe drives using Linux PCI P2PDMA). P2PDMA sets
    ``NVreg_RegistryDwords`` and turns NVMe multipathing off; a ``module_options`` of that name replaces the former."""
    cufile: dict[str, Any] = Field(default_factory=dict)
    """Further sections of /etc/cufile.json, merged over the kit's: ``properties: {max_direct_io_size_kb: 16384}``."""
    nccl_conf: dict[Option, Value] = Field(default_factory=dict)
    """Lines of /etc/nccl.conf; they override those derived from the architecture's fabric. An empty value removes a
    line."""
    nccl_hca: tuple[Value, ...] | None = None
    """RDMA devices of collectives. Default: the architecture's ports of the purpose ``compute``, so that the
    front-end's adapters are left out; without any, the fabric's."""
    reset_gpus: bool = False
    """Whether idle GPUs may be reset at once for a pending MIG mode. Default: no, the next reboot applies it."""
    locked_clocks_mhz: Annotated[tuple[int, ...], Field(min_length=1, max_length=2)] | None = None
    """Lowest and highest SM clock (``nvidia-smi -lgc``), MHz. Default: not locked."""
    locked_memory_clocks_mhz: Annotated[tuple[int, ...], Field(min_length=1, max_length=2)] | None = None
    """As ``nvidia-smi -lmc``, MHz. Default: not locked."""
    container_toolkit: PackageVersion | Literal["latest"] | None = None
    """Version of the four packages of NVIDIA's container toolkit. Default: the version set's; ``latest`` installs
    what the repository has and holds it."""
    runtimes: tuple[Literal["docker", "containerd", "podman"], ...] = ()
    """Container runtimes that hand out GPUs; podman (and any other) through a CDI specification. Default: that of the
    architecture where it declares GPUs in containers (``containers.nvidia_runtime``, ``containers.cdi``)."""
    packages: tuple[Name, ...] = ()
    """Further packages from the same repository."""
    tools: GpuTools = GpuTools()
    torch: Path | None = None
    """Folder of PyTorch on the nodes, ``/opt/torch/lib/python3.12/site-packages``, for the distribution's python3: the
    benchmark of matrix products and memory uses it. Default: what python3 finds by itself."""

    @field_validator("module_options")
    @classmethod
    def _options_of_the_module(cls, options: dict[str, str]) -> dict[str, str]:
        for name in options:
            if not name.startswith("NVreg_"):
                raise ValueError(f"{name}: options of the module nvidia begin with NVreg_")
        return options

    @model_validator(mode="after")
    def _open_modules_need_their_firmware(self) -> GpuInputs:
        if self.flavour == "open" and self.module_options.get("NVreg_EnableGpuFirmware") == "0":
            raise ValueError("NVreg_EnableGpuFirmware=0 with open kernel modules: they cannot work without GSP")
        return self
