"""Names of the kit's architectures, from the names of their files: to collect tests, none is loaded."""

from __future__ import annotations

from rackproof import kit

EVERY = sorted(path.stem for path in kit.folder("architectures").glob("*.yaml"))
SYSTEMS = [name for name in EVERY if not name.startswith("virtual-rack") and not name.endswith("-scaled")]
"""Neither a virtual rack nor scaled to one."""
