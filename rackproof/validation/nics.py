"""What checks of NICs ask a node, and how they judge several ports at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from testinfra.host import Host

from rackproof.core.architecture import Architecture, Nic
from rackproof.core.port_names import names_by_purpose
from rackproof.core.rack import Node
from rackproof.parse import ParseError
from rackproof.remote.recording import Unmeasured
from rackproof.validation.answers import Answer, answer_of
from rackproof.validation.checks import announce, expect_all, read, shown
from rackproof.validation.expected import hardware, nic_of
from rackproof.validation.nic_ports import INTERFACES, RDMA_DEVICES, Meant, Port, ports_of, which


def ports_on(host: Host) -> tuple[Port, ...]:
    """Every port of the node."""
    announce(host, RDMA_DEVICES, INTERFACES)
    return ports_of(read(host, RDMA_DEVICES), read(host, INTERFACES))


def meant_on(host: Host, arch: Architecture, node: Node, purpose: str) -> tuple[Nic, Meant]:
    """What is expected of the ports of a purpose, and which ports these are."""
    nic = nic_of(arch, node, purpose)
    expected = hardware(arch, node, "nics")
    entries: Iterable[Nic] = expected.nics if expected else ()
    try:
        by_purpose = names_by_purpose(node.data)
    except ValueError as error:
        raise Unmeasured(f"the inventory's {error}") from None
    return nic, which(nic, entries, ports_on(host), by_purpose)


def judge_ports(found: Meant, expected: object, value: Callable[[Port], Any], good: Callable[[Any], bool]) -> None:
    """Every port that is meant has a good value; None is no value.

    Raises Unmeasured where a port is missing or says nothing and no other one is wrong, and where nobody names the
    ports and more than one choice of them is possible.
    """
    if not found.ports:
        raise Unmeasured("there is none of these ports; see nic.count")
    if not found.named and len(found.ports) != found.among:
        raise Unmeasured(
            f"nobody names these ports, and there are {len(found.ports)}, not {found.among}; see nic.count"
        )
    values = {port: value(port) for port in found.ports}
    wrong = {port: said for port, said in values.items() if said is not None and not good(said)}
    silent = [port.name for port, said in values.items() if said is None]
    enough = len(found.ports) - len(wrong) >= found.wanted
    if wrong and not (enough and not found.named):
        listed = ", ".join(f"{shown(said)} on {port.name}" for port, said in wrong.items())
        raise AssertionError(f"expected {shown(expected)} on {found.wanted} ports, actual {listed}")
    if wrong:
        raise Unmeasured(
            f"nobody names these ports: {found.wanted} of {found.among} are meant, of which {len(wrong)} are otherwise"
        )
    if silent:
        raise Unmeasured(f"nothing is said about {', '.join(silent)}")
    if found.missing or len(found.ports) < found.wanted:
        raise Unmeasured(f"{', '.join(found.missing) or 'a port'} is not there; see nic.count")


def expect_ports(found: Meant, expected: object, value: Callable[[Port], Any]) -> None:
    """Every port that is meant has exactly this value."""
    judge_ports(found, expected, value, lambda said: bool(said == expected))


def expect_in_order(found: Meant, wanted: tuple[object, ...], value: Callable[[Port], object]) -> None:
    """Each port, by its place in the order of the rails, has its own value; one value stands for all ports."""
    if not found.named:
        raise Unmeasured("nobody names these ports, so that none of them has its place")
    if found.missing or len(found.ports) != found.wanted:
        raise Unmeasured(f"{', '.join(found.missing) or 'a port'} is not there; see nic.count")
    pairs = zip(found.ports, wanted * (found.wanted if len(wanted) == 1 else 1), strict=True)
    values = [(port, value(port), expected) for port, expected in pairs]
    expect_all(
        f"{port.name}: expected {shown(expected)}, actual {shown(said)}"
        for port, said, expected in values
        if said is not None and said != expected
    )
    if silent := [port.name for port, said, _ in values if said is None]:
        raise Unmeasured(f"nothing is said about {', '.join(silent)}")


def answered(host: Host, command: str, tool: str, good: Collection[int] = (0,)) -> Answer:
    """The whole answer to a command that ends with STATUS; raises Unmeasured when it failed."""
    answer = answer_of(tool, read(host, command))
    if answer.not_run:
        raise Unmeasured(f"{tool}: not found on the node")
    if answer.timed_out:
        raise Unmeasured(f"{tool}: no answer in time")
    if answer.status not in good:
        last = answer.body.strip().splitlines()[-1:] or [""]
        raise Unmeasured(f"{tool}: exit status {answer.status}" + (f": {last[0]}" if last[0] else ""))
    return answer


def version_numbers(tool: str, version: str) -> tuple[int, ...]:
    """``28.39.1002`` in numbers that compare."""
    if not re.fullmatch(r"\d+(\.\d+)*", version):
        raise ParseError(tool, f"no version: {version!r}")
    return tuple(map(int, version.split(".")))
