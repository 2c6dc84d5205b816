"""Data of a node for connecting to it and for its place in the rack: types and values that are refused at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_interface
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from rackproof.core.texts import PRINTABLE, Drive, Host, Mac, Name, PathId

_HOST: Final = re.compile(r"[A-Za-z0-9:_][A-Za-z0-9:._%-]{0,254}")
_USER: Final = re.compile(r"[^\s\x00-\x1f\x7f-][^\s\x00-\x1f\x7f-\x9f]{0,254}")
STRICTNESS: Final = ("yes", "no", "off", "ask", "accept-new")
_LONGEST: Final = 4096
"""PATH_MAX of Linux."""
LONGEST_NAME: Final = 200
"""Characters of a node's name; files are named after it, with endings, and NAME_MAX is 255."""
_NAME: Final = re.compile(r"@?[A-Za-z0-9_][A-Za-z0-9@._:/+-]*")
"""A host, an address or a connector of pyinfra's: ``@docker/debian:13``. Names reach shells, files and pages."""
Test = tuple[str, Callable[[Any], bool]]


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _LONGEST and re.fullmatch(PRINTABLE, value) is not None


def _address(value: Any) -> bool:
    """No scope (``fe80::1%eth0``), which may be any text."""
    try:
        return isinstance(value, str) and "%" not in value and bool(ip_interface(value))
    except ValueError:
        return False


def _port(value: Any) -> bool:
    number = isinstance(value, int) and not isinstance(value, bool)
    digits = isinstance(value, str) and re.fullmatch(r"[0-9]{1,5}", value) is not None
    return (number or digits) and 0 < int(value) < 65536


def _number(least: float, most: float, whole: bool = False) -> Callable[[Any], bool]:
    kinds = int if whole else (int, float)
    return lambda value: isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most


def _matches(kind: Any) -> Callable[[Any], bool]:
    """Whether a value is of an annotated type."""
    adapter = TypeAdapter[Any](kind)

    def test(value: Any) -> bool:
        try:
            adapter.validate_python(value, strict=True)
        except ValidationError:
            return False
        return True

    return test


def _list_of(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list | tuple) and all(map(test, value))


_TEXT: Final[Test] = ("text on one line", _text)
_USER_NAME: Final[Test] = ("a user's name", lambda v: isinstance(v, str) and _USER.fullmatch(v) is not None)
_BOOLEAN: Final[Test] = ("True or False", lambda value: isinstance(value, bool))
_ADDRESSES: Final[Test] = ("a list of addresses (10.0.0.1/24)", _list_of(_address))
_MAPPING: Final[Test] = ("a mapping", lambda value: isinstance(value, Mapping))
_COUNT: Final[Test] = ("a number from 1 on", _number(1, 1_000_000, whole=True))
_WHOLE_SECONDS: Final[Test] = ("whole seconds, 1 to 3600", _number(1, 3600, whole=True))

TESTS: Final[Mapping[str, Test]] = {
    "ssh_hostname": ("a name or an address", lambda v: isinstance(v, str) and _HOST.fullmatch(v) is not None),
    "ssh_port": ("1 to 65535", _port),
    **dict.fromkeys(("ssh_user", "_sudo_user", "_su_user", "_doas_user"), _USER_NAME),
    **dict.fromkeys(("ssh_key", "ssh_known_hosts_file", "ssh_config_file", "architecture", "versions_lock"), _TEXT),
    **dict.fromkeys(("_shell_executable", "_su_shell", "_chdir"), _TEXT),
    **dict.fromkeys(("ssh_password", "ssh_key_password", "_sudo_password"), _TEXT),
    **dict.fromkeys(("_sudo", "_doas", "_use_sudo_login", "_use_su_login", "virtual", "simulated_gpus"), _BOOLEAN),
    **dict.fromkeys(("fabric_addresses", "fabric_second_addresses"), _ADDRESSES),
    **dict.fromkeys(("ssh_allow_agent", "ssh_look_for_keys", "ssh_forward_agent", "fact_prefetch"), _BOOLEAN),
    "ssh_strict_host_key_checking": ("one of yes, no, off, ask, accept-new", STRICTNESS.__contains__),
    "fabric_macs": ("a list of MAC addresses", _list_of(_matches(Mac))),
    "fabric_paths": ("a list of udev's ID_PATH (pci-0000:3b:00.0)", _list_of(_matches(PathId))),
    "time_upstreams": ("a list of names or addresses", _list_of(_matches(Host))),
    **dict.fromkeys(("data_drive", "nfs_drive", "ceph_drive"), ("a path or pattern below /dev", _matches(Drive))),
    "scratch_drives": ("a list of paths or patterns below /dev", _list_of(_matches(Drive))),
    "rack": ("a name or a number", lambda value: _text(value) or _number(0, 1_000_000, whole=True)(value)),
    "leaf_switches": ("a list of names, one for each rail", _list_of(_matches(Name))),
    "management_address": ("an address", lambda value: _address(value) and "/" not in value),
    "nic_ports": ("a mapping of purposes to names", lambda value: isinstance(value, Mapping)),
    **dict.fromkeys(
        ("collectives", "containers", "gpu", "guest", "health_check", "nic", "node", "preflight"), _MAPPING
    ),
    **dict.fromkeys(("ingest", "rebooting", "slurm", "storage_client", "versions"), _MAPPING),
    "reboot": ("a mapping", lambda value: isinstance(value, Mapping) or value in ("allowed", "refused")),
    "command_timeout_s": ("seconds, up to 3600", _number(0.001, 3600)),
    **dict.fromkeys(("mount_timeout_s", "mount_retry_s"), _WHOLE_SECONDS),
    **dict.fromkeys(("rollback_keep", "reboot_serial", "nfs_threads"), _COUNT),
    "reboot_mode": ("allowed or refused", ("allowed", "refused").__contains__),
}


def wrong_name(node: object, groups: Iterable[object] = ()) -> str | None:
    """Problem with the name of a node or of one of its groups; None without one."""
    for name in (node, *groups):
        if not isinstance(name, str) or not _NAME.fullmatch(name) or ".." in name.split("/"):
            return f"{str(name)[:60]!r} is no name of a node or group"
    if len(str(node)) > LONGEST_NAME:
        return f"{str(node)[:20]}…: expected a name of at most {LONGEST_NAME} characters"
    return None


def wrong(data: Mapping[str, Any]) -> str | None:
    """The first wrong key, what is expected and what is there; None without one. A password and
    a value in place of a mapping are not shown."""
    for key, (expected, test) in TESTS.items():
        value = data.get(key)
        if value is not None and not test(value):
            hidden = "password" in key or expected == _MAPPING[0]
            actual = type(value).__name__ if hidden else repr(value)[:80]
            return f"{key}: expected {expected}, actual {actual}"
    return None
