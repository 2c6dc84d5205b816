"""The virtual rack of this checkout: groups ``gpu`` and ``storage``, read from ``.lab/``.

``rackproof lab up`` starts it, ``pyinfra inventories/lab.py deploys/cluster.py`` configures it.
"""

from pyinfra.api.exceptions import PyinfraError as _PyinfraError

from rackproof.errors import LabError as _LabError
from rackproof.lab.state import inventory_groups as _inventory_groups

try:
    _groups = _inventory_groups()
except _LabError as _error:
    raise _PyinfraError(str(_error)) from None

gpu = _groups["gpu"]
storage = _groups["storage"]
