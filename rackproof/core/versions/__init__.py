"""The version set of a rack: kernel, driver, fabric manager, network stack, firmware and file-system clients in one
locked file, checked for contradictions before anything is installed."""

from rackproof.core.versions.models import (
    DISTRIBUTION,
    Component,
    Components,
    Driver,
    FileSystemClient,
    Firmware,
    Gds,
    Kernel,
    LockedFile,
    LockedRepository,
    NetworkStack,
    Platform,
    SigningKey,
    VersionSet,
)
from rackproof.core.versions.select import (
    STAGES,
    LockedPackage,
    platform_of,
    stage_components,
    stage_dkms,
    stage_packages,
)

__all__ = [
    "DISTRIBUTION",
    "STAGES",
    "Component",
    "Components",
    "Driver",
    "FileSystemClient",
    "Firmware",
    "Gds",
    "Kernel",
    "LockedFile",
    "LockedPackage",
    "LockedRepository",
    "NetworkStack",
    "Platform",
    "SigningKey",
    "VersionSet",
    "platform_of",
    "stage_components",
    "stage_dkms",
    "stage_packages",
]
