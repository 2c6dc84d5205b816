"""The inventory's mapping ``versions``."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from rackproof.configure.package_transaction.transaction import Policy
from rackproof.configure.settings import Inputs
from rackproof.core.texts import Url


class VersionInputs(Inputs):
    """How a version set is installed: the inventory's mapping ``versions``."""

    KEY: ClassVar = "versions"

    mirrors: dict[Url, Url] = Field(default_factory=dict)
    """The site's replacements for prefixes of vendors' URLs, e.g.
    ``{"https://developer.download.nvidia.com": "http://mirror.site/nvidia"}``. Default: none, packages come from the
    vendors' hosts."""
    proxy: Url | None = None
    """URL of a proxy for HTTP and HTTPS, for the package manager, for keys and for firmware images. Default: none."""
    allow_downgrade: bool = False
    """Whether a package that is newer than locked is downgraded. Default: no, as in apt and dnf."""
    allow_removal: bool = False
    """Whether packages that conflict with locked ones are removed. Default: no; ``apt-get -y`` removes another
    repository's driver silently."""
    hold: bool = True
    """Whether the packages of the set are held afterwards (apt-mark hold, dnf versionlock). Default: yes; a fabric
    manager that is upgraded without its driver does not start NVSwitches."""
    lock_wait_s: int = Field(default=300, ge=0, le=3600)
    """Seconds to wait for another run of the package manager. Default: 300, enough for a daily update."""
    free_mib: int = Field(default=6144, ge=0)
    """MiB that must be free in /usr, /var and /boot (there a tenth of it for a kernel, a fortieth for anything else)
    before a download starts. Default: 6 GiB, for CUDA with its driver unpacked."""

    @property
    def policy(self) -> Policy:
        """Limits of package transactions on this node."""
        return Policy(self.allow_downgrade, self.allow_removal, self.lock_wait_s, self.free_mib, self.proxy)
