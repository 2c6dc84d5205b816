"""Reference architectures: models of ``refarch/v1``, and problems of a file."""

from rackproof.core.architecture.base import (
    Figure,
    Metadata,
    Source,
    SourceStatus,
    Weakening,
)
from rackproof.core.architecture.criterion import (
    Alternative,
    Bar,
    Ceiling,
    Conditions,
    Criterion,
    Curve,
    Gate,
    JudgedEntry,
    LinkShare,
    Outlier,
    Quantity,
    Reduce,
    Reference,
    Severity,
    Statistic,
)
from rackproof.core.architecture.gpu import Gpu
from rackproof.core.architecture.hardware import Expectation, Role
from rackproof.core.architecture.host import Cpu, Drives, Memory
from rackproof.core.architecture.ingest import DataSet, IngestData, IngestJob, IngestProfile, Tree
from rackproof.core.architecture.models import Architecture, Drop
from rackproof.core.architecture.network import Fabric, Lossless, Nic, Pcie
from rackproof.core.architecture.node import Limits, Scratch, User
from rackproof.core.architecture.profiles import (
    CheckpointProfile,
    CollectiveProfile,
    ContainerProfile,
    FioJob,
    GpuProfile,
    GroupTests,
    KneeProfile,
    LinkProfile,
    Profile,
    StorageProfile,
    WholeFile,
)
from rackproof.core.architecture.scale import Scale, Scaled
from rackproof.core.architecture.services import Containers, Slurm
from rackproof.core.architecture.storage import Ceph, Storage
from rackproof.core.architecture.system import System

__all__ = [
    "Alternative",
    "Architecture",
    "Bar",
    "Ceiling",
    "Ceph",
    "CheckpointProfile",
    "CollectiveProfile",
    "Conditions",
    "ContainerProfile",
    "Containers",
    "Cpu",
    "Criterion",
    "Curve",
    "DataSet",
    "Drives",
    "Drop",
    "Expectation",
    "Fabric",
    "Figure",
    "FioJob",
    "Gate",
    "Gpu",
    "GpuProfile",
    "GroupTests",
    "IngestData",
    "IngestJob",
    "IngestProfile",
    "JudgedEntry",
    "KneeProfile",
    "Limits",
    "LinkProfile",
    "LinkShare",
    "Lossless",
    "Memory",
    "Metadata",
    "Nic",
    "Outlier",
    "Pcie",
    "Profile",
    "Quantity",
    "Reduce",
    "Reference",
    "Role",
    "Scale",
    "Scaled",
    "Scratch",
    "Severity",
    "Slurm",
    "Source",
    "SourceStatus",
    "Statistic",
    "Storage",
    "StorageProfile",
    "System",
    "Tree",
    "User",
    "Weakening",
    "WholeFile",
]
