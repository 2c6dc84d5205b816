"""A version set without a fault, to be changed in one place."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import yaml

from rackproof.core.versions import VersionSet
from rackproof.core.versions.document import read_versions

TEXT = """\
apiVersion: versions/v1
name: example
platforms:
  ubuntu-24.04:
    repositories:
      cuda:
        kind: apt
        url: https://vendor.example/cuda
        suites: [/]
        key: {url: https://vendor.example/cuda/key.pub, sha256: "A_DIGEST"}
        exclude: [mft*]
      doca:
        kind: apt
        url: https://other.example/doca
        suites: [./]
        key: {url: https://other.example/doca/key.gpg, sha256: "B_DIGEST"}
        exclude: [dkms]
    components:
      kernel:
        version: 6.8.0-87-generic
        flavour: ga
        packages: {linux-image-6.8.0-87-generic: 6.8.0-87.88, linux-headers-6.8.0-87-generic: 6.8.0-87.88}
      network:
        {version: 3.2.1, stack: doca, ofed: "25.10", repository: doca, packages: {doca-ofed: 3.2.1-1},
         dkms: [mlnx-ofed-kernel]}
      driver:
        {version: 580.126.20, flavour: open, repository: cuda, dkms: [nvidia],
         packages: {nvidia-driver-pinning-580.126.20: 580.126.20-1, nvidia-open: 580.126.20-1}}
      fabric_manager: {version: 580.126.20, repository: cuda, packages: {nvidia-fabricmanager: 580.126.20-1}}
      cuda: {version: "13.0", repository: cuda, packages: {cuda-toolkit-13-0: 13.0.2-1}}
      nccl: {version: 2.30.4, repository: cuda, packages: {libnccl2: 2.30.4-1+cuda13.0}}
      dcgm: {version: 4.5.2, repository: cuda, packages: {datacenter-gpu-manager-4-cuda13: 1:4.5.2-1}}
      gds:
        {version: 13.0.2, repository: cuda, nvidia_fs: 2.28.2, nvidia_fs_for: open, dkms: [nvidia-fs],
         packages: {nvidia-gds: 13.0.2-1}}
      clients:
        lustre: {version: 2.15.8, ofed: "25.10", kernel: 6.8.0-87-generic, packages: {lustre-client-utils: 2.15.8-1}}
""".replace("A_DIGEST", "a" * 64).replace("B_DIGEST", "b" * 64)

Change = dict[str, Any]


@cache
def plain() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(TEXT)
    return data


def changed(changes: Change, platform: str = "ubuntu-24.04") -> VersionSet:
    """The set with values put at dotted keys of its platform; None takes a key out."""
    data = deepcopy(plain())
    data["platforms"] = {platform: data["platforms"]["ubuntu-24.04"]}
    for path, value in changes.items():
        *parents, last = path.split("/")
        place = data["platforms"][platform]
        for key in parents:
            place = place.setdefault(key, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return VersionSet.model_validate(data)


def example() -> VersionSet:
    return read_versions(TEXT, "example.yaml")
