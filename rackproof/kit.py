"""Where the kit's deploys, templates, validators, architectures and example inventories are.

In a checkout they are beside the package; a wheel carries them in ``rackproof/data``. Deploys and
architectures in the working directory are preferred to the kit's own; validators run only when they are named.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from rackproof.core.nearest import suggestion
from rackproof.errors import InventoryError

PACKAGE: Final = Path(__file__).resolve().parent
DATA: Final = "data"
FOLDERS: Final = ("architectures", "deploys", "inventories", "templates", "validators")
LOCK: Final = "uv.lock"
CLUSTER: Final = "deploys/cluster.py"
PREFLIGHT: Final = "deploys/preflight.py"
ROLLBACK: Final = "deploys/rollback.py"


def root() -> Path:
    """The folder that holds FOLDERS and LOCK: of the wheel, or the checkout's."""
    installed = PACKAGE / DATA
    return installed if installed.is_dir() else PACKAGE.parent


def folder(name: str) -> Path:
    """One of FOLDERS as the kit ships it."""
    return root() / name


def shown(path: Path) -> str:
    """A path for a message: relative to the working directory where it is below it."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def deploy_file(name: str) -> Path:
    """The deploy file ``name``; one of the kit's (``deploys/x.py``) where the working directory has none.

    Raises InventoryError.
    """
    path = Path(name)
    if path.is_file():
        return path
    kits = root() / path
    if not path.is_absolute() and path.parent == Path("deploys") and kits.is_file():
        return kits
    known = {f"deploys/{file.name}" for place in (Path("deploys"), folder("deploys")) for file in place.glob("*.py")}
    raise InventoryError(f"{name}: no such deploy file; {suggestion(name, sorted(known - {'deploys/__init__.py'}))}")


def inventory_file(name: str) -> Path:
    """The inventory ``name``. Raises InventoryError where there is no such file."""
    path = Path(name)
    if not path.is_file():
        raise InventoryError(f"{name}: no such inventory file (examples: {shown(folder('inventories'))})")
    return path


def make_deploys_importable() -> None:
    """Append the kit's root to the module search path: deploy files import each other as ``deploys.x``.

    A package ``deploys`` of the working directory comes first.
    """
    if str(root()) not in sys.path:
        sys.path.append(str(root()))
