"""Types of text that a file or an inventory may give.

Whatever reaches a shell, a unit file or another configuration file has a pattern of its own, without blanks, quotes and
``$`` wherever that is possible; the edge quotes it all the same. No type allows a control character: a newline adds a
line to a file, an escape sequence writes to a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, StringConstraints

PRINTABLE: Final = r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$"
"""No control characters, line separators and changes of direction."""


def _one_line(value: Any) -> Any:
    return " ".join(value.split()) if isinstance(value, str) else value


def file_name(text: str) -> str:
    """A name of letters, digits, ``.``, ``_`` and ``-`` alone, for files and for whatever a shell reads."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip(".-") or "unnamed"


Prose = Annotated[str, BeforeValidator(_one_line), StringConstraints(pattern=PRINTABLE)]
"""Text for people; it reaches no node. Line ends are blanks."""
Line = Annotated[str, StringConstraints(pattern=PRINTABLE, min_length=1)]
"""One line of any printable characters: quoted in a shell, and never part of a unit or configuration file whose syntax
it could change."""


REPEATS: Final = 4
"""Most repetitions in one expression; its time may grow with the length of a text to this power."""
_REPEAT: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def expression(text: str) -> re.Pattern[str]:
    """A regular expression whose time does not explode.

    Raises ValueError for other text, for a repetition within a repetition, ``(a+)+``, for one of alternatives,
    ``(a|b)*``, and for more than ``REPEATS`` of them.
    """
    try:
        compiled = re.compile(text)
        if _repetitions(re._parser.parse(text), False) > REPEATS:  # type: ignore[attr-defined]  # public until 3.10
            raise ValueError(f"has more than {REPEATS} repetitions, which may take forever")
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return compiled


def _repetitions(tree: Any, repeated: bool) -> int:
    """Repetitions of variable length in a parsed expression. Raises ValueError for nested ones."""
    count = 0
    for name, argument in tree:
        varies = False
        inner = repeated
        if str(name) in _REPEAT:
            varies = argument[0] != argument[1]
            inner = repeated or argument[1] > 1
        if repeated and (varies or str(name) == "BRANCH"):
            raise ValueError("repeats a part that itself repeats or has alternatives, which may take forever")
        count += varies + sum(_repetitions(part, inner) for part in _trees(argument))
    return count


def _trees(argument: Any) -> Iterator[Any]:
    """Parsed expressions within an argument."""
    if hasattr(argument, "data"):
        yield argument
    elif isinstance(argument, list | tuple):
        for part in argument:
            yield from _trees(part)


def _expression(text: str) -> str:
    expression(text)
    return text


Expression = Annotated[Line, AfterValidator(_expression)]
"""A regular expression on what a node answers; it reaches no node."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*$")]
"""Name of a package, role, partition, kernel module's alias, source, program …"""
Words = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]*( [A-Za-z0-9+._-]+)*$")]
"""Several names with blanks between: ``compute and storage``."""
Module = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]*$")]
Option = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+$")]
"""Name of a variable, of a module's parameter or of a key in another program's file."""
Value = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_,:;=+^%@/-][A-Za-z0-9_.,:;=+^%@/-]*)?$")]
"""Text after such a name: ``=mlx5_0,mlx5_1``, ``a=1;b=2``."""
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9+._:~^-]*$")]
WantedVersion = Annotated[str, StringConstraints(pattern=r"^(>=)?[A-Za-z0-9][A-Za-z0-9+._:~^-]*$")]
VersionPattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9*?][A-Za-z0-9*?+._:~^-]*$")]
"""A version in which ``*`` matches anything."""
SHA256: Final = "[0-9a-f]{64}"
Sha256 = Annotated[str, StringConstraints(pattern=f"^{SHA256}$")]
UserName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
Governor = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
SysctlKey = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+([./][A-Za-z0-9_*-]+)+$")]
SysctlValue = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_/+-][A-Za-z0-9_.,:/+=-]*( +[A-Za-z0-9_.,:/+=-]+)*$")
]
KernelArgument = Annotated[
    str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(=[A-Za-z0-9_.,:/+%@*!=~-]*)?$")
]
"""``iommu=pt``. No ``;`` and no ``$``, which mean something to GRUB."""
Unit = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9:_.@\\-]*$")]
FsLabel = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,11}$")]
FsType = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9._-]*$")]
MountSource = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_/][A-Za-z0-9@+_=:,./-]*$")]
MountOption = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(=[A-Za-z0-9@+_=:/.%~-]*)?$")]
Host = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9:][A-Za-z0-9:._-]*$")]
"""Name or address of a machine."""
Url = Annotated[str, StringConstraints(pattern=r"^(https?|file)://[A-Za-z0-9._~:/?#@!&+,=%\[\]*-]+$")]
ImageName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$")]
"""Name of a container image: ``registry/name:tag``."""
Environment = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of an environment variable."""
Mac = Annotated[str, StringConstraints(pattern=r"^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2})+$", to_lower=True)]
PathId = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9:._*-]*$")]
"""udev's ID_PATH: ``pci-0000:3b:00.0``."""
RdmaName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]

INTERFACE_LENGTH: Final = 15
"""Characters of an interface's name, of the kernel's IFNAMSIZ."""


def _interface(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) or len(name) > INTERFACE_LENGTH:
        raise ValueError(
            f"an interface's name has at most {INTERFACE_LENGTH} letters, digits, '_', '.' and '-', actual {name!r}"
        )
    return name


Interface = Annotated[str, AfterValidator(_interface)]
KERNELS_PREFIXES: Final = ("bond", "dummy", "eth", "ib", "ifb", "team", "tun", "usb", "veth", "wlan", "wwan")
"""Interfaces that the kernel itself names: prefix and number (``%d`` in its drivers)."""


def _own_interface(name: str) -> str:
    if name.rstrip("0123456789") in KERNELS_PREFIXES and name[-1].isdigit():
        raise ValueError(
            f"{name} is a name that the kernel gives, maybe to another port, and udev cannot swap two:"
            " take another prefix, such as rail or stor"
        )
    return name


OwnInterface = Annotated[Interface, AfterValidator(_own_interface)]
"""A name that udev gives to a port. One of the kernel's races with it (systemd.link(5), ``Name=``)."""
InterfacePrefix = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,12}$"),
    AfterValidator(lambda prefix: _own_interface(f"{prefix}0").removesuffix("0")),
]
"""A number is appended."""


def _plain_path(path: str) -> str:
    if {".", ".."} & set(path.split("/")):
        raise ValueError(f"expected a path without . and .., actual {path}")
    return path


Path = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9@+_=:,.~-]+)+$"), AfterValidator(_plain_path)]
"""Absolute path of a file or folder on a node."""
Drive = Annotated[str, StringConstraints(pattern=r"^/dev(/[A-Za-z0-9@+_=:,.*?\[\]-]+)+$"), AfterValidator(_plain_path)]
"""A device, or a shell pattern of devices."""
