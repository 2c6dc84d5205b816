"""Which entry of a version set an adapter is meant by, and where its image comes from."""

from __future__ import annotations

import pytest

from rackproof.configure.nic.declared import locked_firmware
from rackproof.configure.nic.firmware import stricter
from rackproof.configure.nic.inputs import Image, NicInputs
from rackproof.configure.nic.locked_firmware import Locked, locked_version
from rackproof.core.rack import Node
from rackproof.core.versions.models import Components, Firmware, LockedFile
from rackproof.errors import DeclarationError

PSID = "MT_0000000838"
OF_MODEL = Firmware(model="connectx7", version="28.45.1200")
OF_PSID = Firmware(
    psid=PSID, version="28.43.2566", file=LockedFile(url="https://vendor.example/fw/a.bin", sha256="a" * 64)
)


@pytest.mark.parametrize(
    ("psid", "kind", "version"),
    [
        (PSID, "ConnectX-7", "28.43.2566"),
        ("MT_0000000999", "ConnectX-7", "28.45.1200"),
        (None, "ConnectX-7", "28.45.1200"),
        ("MT_0000000999", "ConnectX-6", None),
    ],
)
def test_the_psid_goes_before_the_model(psid: str | None, kind: str, version: str | None) -> None:
    assert locked_version(psid, kind, Locked((OF_MODEL, OF_PSID))) == version


def test_the_inventorys_image_goes_before_the_sets_version() -> None:
    image = Image(version="28.41.1000", url="http://x/y.bin", sha256="b" * 64)
    assert locked_version(PSID, "ConnectX-7", Locked((OF_PSID,), {PSID: image})) == "28.41.1000"


def test_images_come_from_the_sites_mirror_and_through_its_proxy() -> None:
    versions = {"mirrors": {"https://vendor.example": "http://mirror.site/v"}, "proxy": "http://proxy.site:3128"}
    node = Node("gpu-01", ("gpu",), {"versions": versions})
    locked = locked_firmware(node, NicInputs(), Components(nic_firmware=(OF_PSID,)))
    assert locked.images[PSID].url == "http://mirror.site/v/fw/a.bin"
    assert locked.proxy == "http://proxy.site:3128"


def test_a_model_that_no_adapter_is_called_by_is_an_error() -> None:
    """Nothing would ever be compared with it."""
    components = Components(nic_firmware=(Firmware(model="ConnectX-77", version="1"),))
    node = Node("gpu-01", ("gpu",), {})
    with pytest.raises(DeclarationError, match=r"no adapter is called ConnectX-77; known are ConnectX-4, .*nic"):
        locked_firmware(node, NicInputs(), components)
    assert locked_firmware(node, NicInputs(adapters={"15b3:1031": "ConnectX-77"}), components)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (None, "28.43.2566", "28.43.2566"),
        ("28.43.2566", None, "28.43.2566"),
        (">=28.39.1002", "28.43.2566", "28.43.2566"),
        ("28.43.2566", ">=28.39.1002", "28.43.2566"),
        (">=28.39.1002", ">=28.43.1", ">=28.43.1"),
        (">=28.43.2566", "28.43.2566", "28.43.2566"),
        ("28.43.2566", "28.43.2567", None),
        (">=28.45.1", "28.43.2566", None),
        (None, None, None),
    ],
)
def test_the_version_that_is_good_for_both(one: str | None, other: str | None, both: str | None) -> None:
    assert stricter(one, other) == both
