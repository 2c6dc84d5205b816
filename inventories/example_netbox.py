"""An inventory from NetBox: answers of its REST API in ``data/``.

::

    for part in dcim/devices dcim/interfaces ipam/ip-addresses; do
        curl -sf -H "Authorization: Token $NETBOX_TOKEN" "$NETBOX_URL/api/$part/?limit=0" \\
            -o "inventories/data/netbox-${part#*/}.json"
    done

Files keep deploys reproducible while NetBox changes.
"""

from pathlib import Path as _Path

from rackproof.inventories import from_netbox as _from_netbox

_data = _Path(__file__).with_name("data")
_rack = _from_netbox(
    _data / "netbox-devices.json",
    roles={"gpu-server": "gpu", "storage": "storage", "leaf": None},
    interfaces=_data / "netbox-interfaces.json",
    addresses=_data / "netbox-ip-addresses.json",
    rails=r"rail(0)",  # the virtual rack's architecture has one rail; rail(\d+) takes all
    fields={"data_drive": "scratch_drive"},
)

gpu = _rack["gpu"]
storage = _rack["storage"]
