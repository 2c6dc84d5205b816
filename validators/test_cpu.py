"""Processors: number, model, microcode, idle states and frequency control."""

from __future__ import annotations

import re

from testinfra.host import Host

from rackproof.core.architecture import Architecture
from rackproof.core.rack import Node
from rackproof.parse.answer import STATUS
from rackproof.parse.cpu import FREQUENCY, IDLE_STATES, parse_frequency, parse_idle_states, parse_microcode
from rackproof.parse.lscpu import LSCPU, Processors, parse_lscpu
from rackproof.validation import Unmeasured, announce, answered, check, expect, read
from rackproof.validation.expected import cpu_of

MICROCODE = "sed -n 's/^microcode[^:]*: //p' /proc/cpuinfo | sort | uniq -c" + STATUS


def processors(host: Host) -> Processors:
    return parse_lscpu(read(host, LSCPU))


@check(
    "cpu.model",
    reads="roles.{role}.expect.cpu.model",
    protects="A node with slower processors delays every collective.",
    hint="lscpu; compare with the delivery note.",
)
def test_model(host: Host, arch: Architecture, node: Node) -> None:
    expected, actual = cpu_of(arch, node).model or "", processors(host)
    if actual.model is None:
        raise Unmeasured("lscpu names no model")
    if not re.search(expected, actual.model):
        raise AssertionError(f"expected a processor like {expected}, actual {actual.model}")


@check(
    "cpu.sockets",
    reads="roles.{role}.expect.cpu.sockets",
    protects="A node that lacks a processor also lacks the memory, GPUs and NICs attached to it.",
    hint="See the BMC's event log: firmware disables a processor that fails its power-on test.",
)
def test_sockets(host: Host, arch: Architecture, node: Node) -> None:
    expect(processors(host).sockets, cpu_of(arch, node).sockets, "sockets")


@check(
    "cpu.cores",
    reads="roles.{role}.expect.cpu.cores",
    protects="Data loaders are sized by cores; with fewer the GPUs wait for samples.",
    hint="Firmware setup: cores per processor; the kernel's arguments nr_cpus and maxcpus.",
)
def test_cores(host: Host, arch: Architecture, node: Node) -> None:
    actual = processors(host)
    expect(actual.cores, cpu_of(arch, node).cores, "cores")
    # lscpu counts the cores of the first socket and assumes that the others are equal.
    if actual.cores * actual.threads_per_core != actual.online:
        raise Unmeasured(
            f"{actual.cores} cores of {actual.threads_per_core} threads are not {actual.online} processors"
        )


@check(
    "cpu.threads",
    reads="roles.{role}.expect.cpu.threads",
    protects="Slurm drains a node that shows fewer processors than its configuration says.",
    hint="lscpu lists off-line CPUs; firmware setup: hyper-threading; nosmt and nr_cpus on the kernel's command line.",
)
def test_threads(host: Host, arch: Architecture, node: Node) -> None:
    expect(processors(host).online, cpu_of(arch, node).threads, "threads on line")


@check(
    "cpu.numa_nodes",
    reads="roles.{role}.expect.cpu.numa_nodes",
    protects="With another NUMA layout every pinning is wrong, and memory traffic crosses sockets.",
    hint="Firmware setup: nodes per socket (NPS), sub-NUMA clustering, interleaving; numa=off on the command line.",
)
def test_numa_nodes(host: Host, arch: Architecture, node: Node) -> None:
    numa_nodes = processors(host).numa_nodes
    if numa_nodes is None:
        raise Unmeasured("lscpu lists no NUMA nodes")
    expect(numa_nodes, cpu_of(arch, node).numa_nodes, "NUMA nodes with processors")


@check(
    "cpu.smt",
    reads="roles.{role}.expect.cpu.smt",
    protects="Two ranks on one core run at half speed each, and pinning by CPU number selects the wrong core.",
    hint="Firmware setup: hyper-threading or SMT; cat /sys/devices/system/cpu/smt/control.",
)
def test_smt(host: Host, arch: Architecture, node: Node) -> None:
    threads = processors(host).threads_per_core
    expected = "more than one thread" if cpu_of(arch, node).smt else "one thread"
    if (threads > 1) != cpu_of(arch, node).smt:
        raise AssertionError(f"expected {expected} a core, actual {threads}")


@check(
    "cpu.microcode",
    reads="roles.{role}.expect.cpu.microcode",
    protects="Microcode fixes errata that hang or slow a processor; nodes with different revisions behave differently.",
    hint="Update the firmware, or the package intel-microcode or amd64-microcode, then reboot.",
)
def test_microcode(host: Host, arch: Architecture, node: Node) -> None:
    announce(host, MICROCODE, LSCPU)
    revisions = parse_microcode(answered(host, MICROCODE, "/proc/cpuinfo").lines)
    expected = cpu_of(arch, node).microcode or ""
    least, revision = expected.startswith(">="), int(expected.removeprefix(">="), 16)
    wrong = [
        f"{version} on {count} processors"
        for version, count in revisions.items()
        if (int(version, 16) < revision if least else int(version, 16) != revision)
    ]
    if wrong:
        raise AssertionError(f"expected {expected}, actual {', '.join(wrong)}")
    listed, online = sum(revisions.values()), processors(host).online
    if listed != online:
        raise Unmeasured(f"revisions of {listed} processors, but {online} are online")


@check(
    "cpu.idle_states",
    reads="roles.{role}.expect.cpu.idle_latency_max_us",
    protects="A core in a deep idle state handles a network interrupt about 100 µs late.",
    hint="cpupower idle-info; intel_idle.max_cstate or processor.max_cstate on the command line, a tuned profile.",
)
def test_idle_states(host: Host, arch: Architecture, node: Node) -> None:
    limit = cpu_of(arch, node).idle_latency_max_us or 0
    deep = [
        f"{state.name} with {state.latency_us} us on {state.processors} processors"
        for state in parse_idle_states(read(host, IDLE_STATES))
        if state.latency_us > limit and not state.disabled
    ]
    if deep:
        raise AssertionError(f"expected no idle state with more than {limit} us, actual {', '.join(deep)}")


@check(
    "cpu.frequency_driver",
    reads="roles.{role}.expect.cpu.frequency_driver",
    protects="Without its driver the kernel cannot control frequencies, and firmware power saving applies.",
    hint="cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_driver; firmware setup: OS control of performance states.",
)
def test_frequency_driver(host: Host, arch: Architecture, node: Node) -> None:
    expect(parse_frequency(read(host, FREQUENCY)).driver, cpu_of(arch, node).frequency_driver, "frequency driver")


@check(
    "cpu.turbo",
    reads="roles.{role}.expect.cpu.turbo",
    protects="Without turbo, kernel launches and data loading are about a third slower than on other nodes.",
    hint="cat /sys/devices/system/cpu/intel_pstate/no_turbo or cpufreq/boost; firmware setup: turbo boost.",
)
def test_turbo(host: Host, arch: Architecture, node: Node) -> None:
    turbo = parse_frequency(read(host, FREQUENCY)).turbo
    if turbo is None:
        raise Unmeasured("the kernel has no switch for turbo")
    words = {True: "on", False: "off"}
    expect(words[turbo], words[bool(cpu_of(arch, node).turbo)], "turbo")
