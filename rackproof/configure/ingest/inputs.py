"""Inputs of the ingest benchmark. What it measures is the architecture's profile."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import StringConstraints

from rackproof.configure.settings import Inputs
from rackproof.core.texts import ImageName, Path, Url, UserName

Share = Annotated[str, StringConstraints(pattern=r"^//[A-Za-z0-9][A-Za-z0-9:._-]*/[A-Za-z0-9._$-]+$")]
"""``//server/share``."""


class IngestInputs(Inputs):
    """``ingest`` in the inventory's data: other ways into a storage than its mounts, and the place of DLIO."""

    KEY: ClassVar = "ingest"

    smb_share: Share | None = None
    """SMB share of the storage. Default: none, and trees by SMB are UNMEASURED."""
    smb_folder: Path = "/rackproof-data"
    """Folder in the share that the mounts show as ``rackproof-data``. Default: the share is what is mounted."""
    smb_credentials: Path | None = None
    """File on the first node with user name and password, as ``smbclient -A`` reads it; the account
    ``rackproof-bench`` must be able to read it. Default: none, a guest."""
    hdfs_url: Url | None = None
    """WebHDFS of the storage, with the path that the mounts show as ``rackproof-data``
    (``http://isilon:8082/webhdfs/v1/rackproof-data``). Default: none, and trees by HDFS are UNMEASURED."""
    image: ImageName | None = None
    """Container image with PyTorch, torchvision, numpy and Pillow, on every node, in which jobs of the engine ``torch``
    run (docker or podman, started by root, as the account ``rackproof-bench``). ``bench.programs`` passes for an image
    that came from a registry. Default: none, and ``collectives.python`` has them."""
    dlio: Path | None = None
    """Folder with ``dlio_benchmark`` and ``mpirun`` on the first node, or on all of several clients, such as ``bin`` of
    the virtual environment of ``mlpstorage``; the account ``rackproof-bench`` must be able to read it. Default: none,
    and PATH has them."""
    dlio_configs: Path | None = None
    """Folder on the first node with configurations of DLIO, such as ``configs/dlio`` of ``mlpstorage``
    (``--config-dir``). Default: none, and DLIO's own count."""
    hdfs_user: UserName = "hdfs"
    """User of WebHDFS (``user.name``). Default: Hadoop's own."""
