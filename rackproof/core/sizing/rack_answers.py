"""Answers about the rack: which stage binds, concurrency, network, storage units, connections."""

from __future__ import annotations

from rackproof.core.sizing import planning, words
from rackproof.core.sizing.answer import Answer, Fact, unanswered
from rackproof.core.sizing.model import Phase
from rackproof.core.sizing.planning import NETWORKS, smallest, up
from rackproof.core.sizing.view import View, title_of
from rackproof.core.wording import exact

NAMED_NETWORKS = (10, 25, 100)
"""Common line rates; the page has all."""


def bottleneck(view: View) -> Answer:
    first, says = view.first, []
    says += [_phase_sentence(view, phase) for phase in view.phases]
    if view.later and _names(view.later) == _names(first):
        says[1] = f"After the first epoch it is the same stage: {_rate(view.later)}."
    unknown = tuple(dict.fromkeys(reason for stage in first.unknown for reason in stage.missing))
    if first.unknown:
        names = words.listed([title_of(s) for s in first.unknown])
        says.append(f"Not compared, so the true rate may be lower: {names} ({'; '.join(unknown)}).")
    if not view.later:
        says.append(f"After the first epoch: unknown, {'; '.join(view.later_missing)}.")
    figures: dict[str, Fact] = {
        "first_epoch_stage": _names(first),
        "first_epoch_samples_per_s": first.samples_per_s,
        "first_epoch_bytes_per_s": first.storage_read,
        "first_epoch_headroom": headroom(first),
        "later_stage": _names(view.later) if view.later else None,
        "later_samples_per_s": view.later.samples_per_s if view.later else None,
        "stages_not_compared": len(first.unknown),
    }
    headline = ("first_epoch_stage", "first_epoch_samples_per_s", "first_epoch_headroom", "later_stage")
    return Answer("bottleneck", "Which stage binds, and with what headroom?", tuple(says), figures, headline, unknown)


def headroom(phase: Phase) -> float | None:
    """Throughput of the next stage, the first below its ceiling, as a multiple of the current one; None without one."""
    pressures = [s.pressure for s in phase.by_pressure if s not in phase.binding]
    return 1 / pressures[0] if pressures and pressures[0] else None


def _phase_sentence(view: View, phase: Phase) -> str:
    if not phase.binding:
        return f"In the {phase.name}: unknown, no stage has all its figures."
    names = words.listed([title_of(s) for s in phase.binding])
    # With an unknown stage, the narrowest known stage is not proven to be the bottleneck.
    lead = "the narrowest known stage is" if phase.unknown else "the bottleneck is"
    text = f"In the {phase.name} {lead} {names}: {_rate(phase)}"
    next_stages = [s for s in phase.by_pressure if s not in phase.binding]
    if next_stages:
        after, room = next_stages[0], headroom(phase)
        used, ceiling = words.percent(after.utilisation or 0.0), words.percent(after.ceiling)
        text += f". Next: {title_of(after)}, {used} used of the planned {ceiling}"
        text += f", a headroom of {words.number(room)} times" if room else ""
    return f"{text}."


def _rate(phase: Phase) -> str:
    if phase.samples_per_s is None:
        return "unknown"
    at_most = "at most " if phase.unknown else ""
    text = f"{at_most}{words.number(phase.samples_per_s)} samples/s"
    read = phase.storage_read
    return text if read is None else f"{text}, {words.bandwidth(read)} from the storage"


def _names(phase: Phase | None) -> str | None:
    if phase is None or not phase.binding:
        return None
    return ", ".join(s.key for s in phase.binding)


def concurrency(view: View) -> Answer:
    edge, system, says = view.edge, view.inputs.system, []
    unknown = view.lacking("unit.unloaded_latency") + view.tenants_lacking("read_size")
    if edge.requests_per_s is not None and edge.outstanding is not None and edge.latency_s is not None:
        how = (
            "as the architecture assumes" if edge.latency_assumed else f"at {words.percent(edge.utilisation or 0)} load"
        )
        per_node = edge.outstanding / system.nodes
        split = "" if system.connections is None else f", {words.number(per_node / system.connections)} a connection"
        says.append(
            f"The job needs {words.number(edge.requests_per_s)} reads/s; at {words.duration(edge.latency_s)} each "
            f"({how}) that is {words.number(edge.outstanding)} in flight, {words.number(per_node)} a node{split}."
        )
    if edge.knee is not None and edge.service_per_s is not None:
        says.append(
            f"Latency has doubled at {words.number(edge.knee)} reads in flight, "
            f"{words.number(edge.knee / system.nodes)} a node: the storage answers {words.number(edge.service_per_s)} "
            f"reads/s, and further reads only wait longer."
        )
        if not edge.latency_assumed and edge.utilisation is not None and edge.utilisation < 1:
            times = words.number(1 / (1 - edge.utilisation))
            says.append(f"At the job's own load a read takes {times} times what it takes unloaded.")
    else:
        says.append(f"The knee is unknown: {'; '.join(unknown or ('the storage has no read rate',))}.")
    if edge.available is not None and edge.outstanding is not None:
        enough = edge.available >= edge.outstanding
        says.append(
            f"The clients' connections can have {words.number(edge.available)} in flight, "
            f"{'which is enough' if enough else 'which is too few: they wait for a slot, not for the storage'}."
        )
    beyond = None if edge.knee is None or edge.outstanding is None else edge.outstanding > edge.knee
    figures: dict[str, Fact] = {
        "reads_per_s": edge.requests_per_s,
        "latency_s": edge.latency_s,
        "in_flight": edge.outstanding,
        "in_flight_per_node": None if edge.outstanding is None else edge.outstanding / system.nodes,
        "knee_in_flight": edge.knee,
        "beyond_knee": beyond,
        "slots": edge.available,
    }
    headline = ("knee_in_flight", "in_flight", "beyond_knee")
    return Answer(
        "concurrency",
        "What level of concurrency does the storage support before latency ticks up?",
        tuple(says),
        figures,
        headline,
        unknown,
    )


def network(view: View) -> Answer:
    question = "Is 10, 25 or 100 GbE enough, in the first epoch and after?"
    unknown = view.tenants_lacking("rate_per_gpu", "sample_size")
    if unknown:
        return unanswered("network", question, unknown)
    by_rate = {n.gbps: n for n in view.networks}
    first = smallest(view.networks)
    later = smallest(view.networks, later=True) if view.later else None
    ports = words.count(view.inputs.system.storage_ports, "port")
    ceiling = words.percent(view.inputs.system.ceilings.network)
    says = [f"The smallest that stays below {ceiling} with {ports} a node: {_choice(first)} in the first epoch"]
    says[0] += (
        f", {_choice(later)} after it." if view.later else f"; after it unknown, {'; '.join(view.later_missing)}."
    )
    best = by_rate[NETWORKS[-1]].job_s
    for gbps in NAMED_NETWORKS:
        n = by_rate[gbps]
        load = f"{words.percent(n.first or 0.0)} in the first epoch"
        load += "" if n.later is None else f", {words.percent(n.later)} after"
        effect = ""
        if n.job_s is not None and best is not None and len(view.inputs.tenants) == 1:
            longer = n.job_s / best - 1
            effect = "; the job takes as long" if longer < 1e-3 else f"; the job takes {words.percent(longer)} longer"
        says.append(f"{gbps} Gb/s: {load}{effect}.")
    figures: dict[str, Fact] = {"first_epoch_gbps": first, "later_gbps": later}
    for n in view.networks:
        figures |= {
            f"load_{n.gbps}_first_epoch": n.first,
            f"load_{n.gbps}_later": n.later,
            f"job_{n.gbps}_s": n.job_s,
        }
    return Answer("network", question, tuple(says), figures, ("first_epoch_gbps", "later_gbps"), view.later_missing)


def _choice(gbps: int | None) -> str:
    return f"{gbps} Gb/s" if gbps is not None else f"none, not even {NETWORKS[-1]} Gb/s (add ports)"


def units(view: View) -> Answer:
    question = "How many storage units, and how many nodes do they feed?"
    unit, counts, title = view.inputs.system.unit, view.units, view.inputs.unit_title
    needed, measured = counts.needed, counts.needed_as_measured
    unknown = view.lacking("unit.read", "unit.read_iops", "unit.capacity")
    unknown += view.tenants_lacking("rate_per_gpu", "sample_size", "read_size")
    if needed is None:
        missing = view.lacking("unit.read") + view.tenants_lacking("rate_per_gpu", "sample_size")
        return unanswered("units", question, missing, unknown)
    limits = {
        "bandwidth": counts.by_bandwidth,
        "reads/s": counts.by_requests,
        "opens/s": counts.by_opens,
        "ports": counts.by_ports,
        "capacity": counts.by_capacity,
    }
    known_limits = {name: k for name, k in limits.items() if k is not None}
    most = max(known_limits, key=lambda name: known_limits[name])
    other_limits = [f"{name} {words.number(k)}" for name, k in known_limits.items() if name != most]
    says = [
        f"{needed} of: {title}. {most.capitalize()} requires {words.number(known_limits[most])}"
        f"{' (' + ', '.join(other_limits) + ')' if other_limits else ''}; the rack has {exact(unit.count)}."
    ]
    if measured is not None and unit.read_measured is not None and unit.read is not None:
        says.append(
            f"With the measured {words.bandwidth(unit.read_measured)} of a unit instead of the specified "
            f"{words.bandwidth(unit.read)}: {measured}."
        )
    by_measured = unit.read_measured is not None
    feeds = planning.nodes_supported(view.inputs, view.first, by_measured)
    if feeds is not None:
        verb = "feeds" if unit.count == 1 else "feed"
        says.append(f"The rack's {exact(unit.count)} {verb} {words.count(feeds, 'node')} at full GPU speed{_by(view)}.")
        says.append(_kind_of_storage(view, needed))
    lacking = view.lacking("unit.read_iops", "unit.capacity")
    if lacking:
        says.append(f"Not compared: {'; '.join(lacking)}.")
    figures: dict[str, Fact] = {
        "needed": needed,
        "needed_as_measured": measured,
        "by_bandwidth": counts.by_bandwidth,
        "by_measured_bandwidth": counts.by_measured_bandwidth,
        "by_requests": counts.by_requests,
        "by_opens": counts.by_opens,
        "by_ports": counts.by_ports,
        "by_capacity": counts.by_capacity,
        "nodes_fed": feeds,
    }
    return Answer("units", question, tuple(says), figures, ("needed", "needed_as_measured"), unknown)


def _by(view: View) -> str:
    """The figure of a unit that an answer is based on, if there are two."""
    measured = view.inputs.system.unit.read_measured
    return "" if measured is None else f", by the measured {words.bandwidth(measured)} of a unit"


def _kind_of_storage(view: View, needed: int) -> str:
    hits = [flow.hit for flow in view.later.flows] if view.later else []
    if hits and min(hits) >= 1:
        return "Every node can cache its data: local drives or memory in front of any shared storage suffice."
    if needed == 1 and view.inputs.system.unit.nodes > 1:
        nodes = words.count(view.inputs.system.unit.nodes, "node")
        return f"One unit feeds the rack, but it is a chassis of {nodes}: whether a single server would is unknown."
    if needed == 1:
        return "One unit feeds the rack: a single server suffices, without a parallel file system."
    return "One unit does not feed the rack: it needs a storage that grows by units, not a single NFS server."


def connections(view: View) -> Answer:
    question = "How many storage connections does each node need?"
    system = view.inputs.system
    unknown = view.lacking("connection_rate") + view.tenants_lacking("rate_per_gpu", "sample_size")
    needed = planning.connections_needed(view.inputs, view.first)
    if needed is None or system.connection_rate is None:
        return unanswered("connections", question, unknown)
    count = max(1, up(needed))
    says = [
        f"{count}: a node needs {words.bandwidth(needed * system.connection_rate)} "
        f"and one connection carries {words.bandwidth(system.connection_rate)}."
    ]
    if count > 1:
        says.append(f"A single one would limit the node to {words.percent(1 / needed)} of its demand.")
    have = system.connections
    if have is not None:
        verb = "is" if have == 1 else "are"
        says.append(f"{exact(have)} {verb} in use, each at {words.percent(needed / have)} of its rate.")
    figures: dict[str, Fact] = {"needed_per_node": count, "exact": needed, "in_use_per_node": have}
    return Answer("connections", question, tuple(says), figures, ("needed_per_node", "exact"), unknown)
