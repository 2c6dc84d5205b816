"""Answers about the jobs: caches, faster GPUs, job time, prefetch, checkpoints, tenants, durable storage."""

from __future__ import annotations

from rackproof.core.architecture.workloads import WorkloadKind
from rackproof.core.sizing import planning, words
from rackproof.core.sizing.answer import Answer, Fact, not_known, unanswered
from rackproof.core.sizing.model import SINGULAR, TITLES
from rackproof.core.sizing.planning import smallest
from rackproof.core.sizing.rack_answers import headroom
from rackproof.core.sizing.tenancy import mix, served
from rackproof.core.sizing.view import View, title_of
from rackproof.core.wording import exact

NEGLIGIBLE = 0.02
"""Minimum share of the first epoch in a job that justifies a faster network."""
_FASTER = 2.0


def caches(view: View) -> Answer:
    unknown = view.later_missing + view.lacking("unit.cache")
    says: list[str] = []
    figures: dict[str, Fact] = {}
    for tenant, c in zip(view.inputs.tenants, view.caches, strict=True):
        for_tenant = _whose(view, tenant.name)
        if c.ratio is not None and c.held is not None and c.dataset is not None:
            defeats = (c.client_hit or 0.0) < 1
            verdict = "exceeds the nodes' caches" if defeats else "fits into the caches of every node"
            says.append(
                f"The data set{for_tenant} ({words.size(c.dataset)}) {verdict}: it has {words.number(c.ratio)} times "
                f"the size of all caches together ({words.size(c.held)})."
            )
        if c.client_hit is not None:
            server_part = "" if c.server_hit is None else f", the storage's cache for {words.percent(c.server_hit)}"
            says.append(
                f"In the long run a node's own cache serves {words.percent(c.client_hit)} of its reads{server_part}."
            )
        if c.disk_read is not None:
            says.append(f"The storage's disks then deliver {words.bandwidth(c.disk_read)}.")
        if c.fill_s is not None:
            fits = c.client_hit == 1
            result = "the storage receives no more reads" if fits else "the nodes' caches are full"
            says.append(f"After {words.duration(c.fill_s)} {result}{for_tenant}.")
        figures |= _keyed(
            view,
            tenant.name,
            ratio=c.ratio,
            client_hit=c.client_hit,
            server_hit=c.server_hit,
            disk_bytes_per_s=c.disk_read,
            fits_client=None if c.client_hit is None else c.client_hit == 1,
            fill_s=c.fill_s,
        )
    says += not_known(unknown)
    return Answer(
        "caches",
        "Does the data set exceed the caches?",
        tuple(says),
        figures,
        _all(figures, "ratio", "fits_client"),
        unknown,
    )


def faster_gpus(view: View) -> Answer:
    question = "What is the effect of faster GPUs?"
    unknown = view.tenants_lacking("rate_per_gpu", "sample_size")
    if unknown:
        return unanswered("faster_gpus", question, unknown)
    phase, inputs = view.first, view.inputs
    by_gpu = phase.binding != () and all(s.name.value == "gpu" for s in phase.binding)
    room = headroom(phase) if by_gpu else 1.0
    twice = inputs
    for tenant in inputs.tenants:
        rate = tenant.rate_per_gpu
        twice = twice.replaced(inputs.name_of(tenant, "rate_per_gpu"), None if rate is None else rate * _FASTER)
    doubled = View(twice, timed=False)
    gain = (
        doubled.first.samples_per_s / phase.samples_per_s
        if doubled.first.samples_per_s and phase.samples_per_s
        else None
    )
    others_below = [s for s in phase.by_pressure if s not in phase.binding]
    following = title_of(others_below[0]) if by_gpu and others_below else None
    says = []
    if by_gpu and following and room:
        verb = "limits" if others_below[0].name in SINGULAR else "limit"
        says.append(f"GPUs up to {words.number(room)} times as fast help, before the {following} {verb} them.")
    elif by_gpu:
        says.append("GPUs are the only known bottleneck.")
    else:
        slow = words.listed([title_of(s) for s in phase.binding])
        says.append(f"None: the GPUs already wait for the {slow}, and faster ones would wait longer.")
    if gain is not None:
        needs = [f"{words.number(doubled.units.needed)} storage units"] if doubled.units.needed else []
        cores = [d.cores_per_node for d in doubled.demands if d.cores_per_node is not None]
        needs += [f"{words.number(max(cores) / inputs.system.ceilings.cpu)} cores a node"] if cores else []
        gbps = smallest(doubled.networks)
        needs += [f"{gbps} Gb/s storage ports" if gbps else "more storage ports"]
        times, price = words.number(gain), words.listed(needs)
        says.append(f"GPUs twice as fast deliver {times} times the samples; the full gain needs {price}.")
        says.append("For a particular GPU: --set rate_per_gpu=….")
    figures: dict[str, Fact] = {
        "headroom": room,
        "next_stage": following,
        "gain_at_twice": gain,
        "units_at_twice": doubled.units.needed,
        "network_at_twice_gbps": smallest(doubled.networks),
    }
    return Answer("faster_gpus", question, tuple(says), figures, ("headroom", "next_stage", "gain_at_twice"), unknown)


def first_epoch_share(view: View) -> Answer:
    says: list[str] = []
    figures: dict[str, Fact] = {}
    trained = [t for t in view.inputs.tenants if t.kind is WorkloadKind.TRAINING]
    keys = [view.inputs.name_of(t, key) for t in trained for key in ("dataset", "epochs")]
    unknown = view.lacking(*keys) + (view.later_missing if trained else ())
    for tenant, job in zip(view.inputs.tenants, view.jobs, strict=True):
        if tenant.kind is not WorkloadKind.TRAINING:
            continue
        for_tenant = _whose(view, tenant.name)
        if job.first_s is not None:
            text = f"The first epoch{for_tenant} takes {words.duration(job.first_s)}"
            says.append(f"{text}, every later one {words.duration(job.later_s)}." if job.later_s else f"{text}.")
        if job.total_s is not None and job.first_share is not None:
            says.append(
                f"{words.count(tenant.epochs or 1, 'epoch')} take {words.duration(job.total_s)}, checkpoints and "
                f"evaluation not counted; the first is {words.percent(job.first_share)} of it."
            )
            if job.first_s and job.later_s and job.first_s > job.later_s * (1 + 1e-9):
                little = job.first_share < NEGLIGIBLE
                says.append(
                    "A faster network for the first read has no benefit."
                    if little
                    else "A faster first read shortens the job."
                )
            else:
                says.append("The first epoch is as fast as the others: the caches have no effect on the rate.")
        figures |= _keyed(
            view,
            tenant.name,
            first_s=job.first_s,
            later_s=job.later_s,
            total_s=job.total_s,
            first_share=job.first_share,
        )
    says += not_known(unknown)
    if not trained:
        says.append("No workload is training, so none has epochs.")
    return Answer(
        "first_epoch",
        "How long does the job take, and what share is the first read of the data?",
        tuple(says),
        figures,
        _all(figures, "first_s", "total_s", "first_share"),
        tuple(dict.fromkeys(unknown)),
    )


def prefetch(view: View) -> Answer:
    says: list[str] = []
    figures: dict[str, Fact] = {}
    latency = view.edge.latency_s
    unknown = () if latency is not None else view.lacking("unit.loaded_latency")
    unknown += view.tenants_lacking("rate_per_gpu", "read_size", "cpu_time_per_sample")
    for tenant in view.inputs.tenants:
        depth = planning.prefetch(view.inputs, tenant, latency)
        if depth is not None:
            batch = tenant.batch_per_gpu
            of = "" if batch is None else f", {_batches(depth / batch)} of {exact(batch)}"
            for_tenant = _whose(view, tenant.name)
            says.append(f"{planning.up(depth)} samples a GPU{for_tenant}{of}, if a sample's reads follow one another.")
        figures |= _keyed(view, tenant.name, samples_per_gpu=depth)
    says += not_known(unknown)
    return Answer(
        "prefetch", "How deep must the input pipeline prefetch?", tuple(says), figures, tuple(figures), unknown
    )


def checkpoint(view: View) -> Answer:
    says: list[str] = []
    figures: dict[str, Fact] = {}
    unknown: tuple[str, ...] = ()
    for tenant, c in zip(view.inputs.tenants, view.checkpoints, strict=True):
        if tenant.kind is not WorkloadKind.TRAINING:
            continue
        unknown += c.missing
        if c.stall_s is not None:
            share = "" if c.share is None else f", {words.percent(c.share)} of the time between two"
            says.append(
                f"{words.duration(c.stall_s)}{_whose(view, tenant.name)}{share}, while nothing else is written."
            )
        figures |= _keyed(view, tenant.name, stall_s=c.stall_s, share=c.share)
    says += not_known(unknown)
    if not figures:
        says.append("No workload is training, so none writes checkpoints.")
    question = "How long does a checkpoint stop the job?"
    return Answer("checkpoint", question, tuple(says), figures, _all(figures, "stall_s"), tuple(dict.fromkeys(unknown)))


def tenants(view: View) -> Answer:
    question = "Which mix of training and inference fits?"
    inputs, first = view.inputs, view.first
    unit, read = inputs.system.unit, first.storage_read
    spare = None
    if unit.read is not None and read is not None:
        allowed = unit.count * unit.read * inputs.system.ceilings.storage
        spare = 0.0 if read > allowed * (1 - 1e-9) else allowed - read
    part = served(first)
    fits = None if part is None else part >= 1 - 1e-9
    says = []
    if fits is None:
        says.append("Unknown: not all workloads have a known rate of the nodes alone.")
    elif len(inputs.tenants) == 1:
        says.append("Only one workload is selected; add another with --workload for a mix.")
    elif fits:
        says.append("This one: every workload reaches the rate of its nodes.")
    else:
        shared = words.listed([title_of(s) for s in first.binding])
        slowed = words.percent(part or 0.0)
        verb = "is" if len(first.binding) == 1 and first.binding[0].name in SINGULAR else "are"
        says.append(
            f"Not this one: the {shared} {verb} too small, and every workload reaches {slowed} of its own rate."
        )
    if spare is not None:
        says.append(
            f"With cold caches the storage has {words.bandwidth(spare) if spare else 'no'} spare below its ceiling."
        )
    split = mix(inputs)
    if split is not None:
        says.append(_mix_sentence(inputs.system.nodes, split.least, split.most, split.limit and TITLES[split.limit]))
        if split.quiet_least is not None and split.quiet_most is not None:
            span = f"{split.quiet_least} to {split.quiet_most}" if split.quiet_least else f"at most {split.quiet_most}"
            says.append(f"Reads take less than twice their unloaded time (half load, M/M/1) with {span} of inference.")
        else:
            says.append("No split leaves the storage below half load, where reads take twice their unloaded time.")
    figures: dict[str, Fact] = {
        "fits": fits,
        "served": part,
        "spare_bytes_per_s": spare,
        "inference_nodes_least": split.least if split else None,
        "inference_nodes_most": split.most if split else None,
        "quiet_inference_nodes_least": split.quiet_least if split else None,
        "quiet_inference_nodes_most": split.quiet_most if split else None,
    }
    headline = ("fits", "spare_bytes_per_s", "inference_nodes_least", "inference_nodes_most")
    unknown = view.tenants_lacking("rate_per_gpu", "sample_size") + view.lacking("unit.read", "unit.read_iops")
    return Answer("tenants", question, tuple(says), figures, headline, unknown)


def _mix_sentence(nodes: float, least: int | None, most: int | None, limit: str | None) -> str:
    if least is None or most is None:
        return f"No split of {words.count(nodes, 'node')} fits: the {limit} is too small for either kind."
    if least == 0 and most == nodes:
        return f"Any split of the {words.count(nodes, 'node')} fits."
    bounds = f"at most {most}" if least == 0 else f"at least {least}" if most == nodes else f"{least} to {most}"
    end = f"; the {limit} is the limit" if limit else ""
    return f"Of {words.count(nodes, 'node')}, {bounds} may run inference and the rest training{end}."


def scale(view: View) -> Answer:
    """The scale of the durable storage, training beside inference."""
    inputs, says = view.inputs, []
    figures: dict[str, Fact] = {}
    for kind in WorkloadKind:
        chosen = [i for i, t in enumerate(inputs.tenants) if t.kind is kind]
        if not chosen:
            continue
        sizes = [s for i in chosen if (s := inputs.tenants[i].dataset) is not None]
        reads = [r for i in chosen if (r := view.first.flows[i].storage_read) is not None]
        later = [r for i in chosen if view.later and (r := view.later.flows[i].storage_read) is not None]
        parts = [f"{words.size(sum(sizes))} of data"] if sizes else []
        parts += [f"{words.bandwidth(sum(reads))} of reads with cold caches"] if reads else []
        parts += [f"{words.bandwidth(sum(later))} with full ones"] if later else []
        if parts:
            says.append(f"{kind.value.capitalize()}: {words.listed(parts)}.")
        figures |= {
            f"{kind.value}_bytes": sum(sizes) if sizes else None,
            f"{kind.value}_first_bytes_per_s": sum(reads) if reads else None,
            f"{kind.value}_later_bytes_per_s": sum(later) if later else None,
        }
    unknown = view.tenants_lacking("dataset") + view.lacking("unit.capacity")
    figures["units_by_capacity"] = view.units.by_capacity
    if view.units.by_capacity is not None:
        says.append(f"That fills {words.number(view.units.by_capacity)} storage units.")
    says += not_known(unknown)
    question = "What is the scale of the durable storage, for training and for inference?"
    return Answer("scale", question, tuple(says), figures, tuple(figures), unknown)


def _batches(count: float) -> str:
    return "less than a batch" if count < 1 else f"{planning.up(count)} batches"


def _whose(view: View, tenant: str) -> str:
    return f" of {tenant}" if len(view.inputs.tenants) > 1 else ""


def _keyed(view: View, tenant: str, **figures: Fact) -> dict[str, Fact]:
    """Figures of one tenant, with its name as prefix if there are several."""
    return {name if len(view.inputs.tenants) == 1 else f"{tenant}.{name}": value for name, value in figures.items()}


def _all(figures: dict[str, Fact], *names: str) -> tuple[str, ...]:
    return tuple(key for key in figures if key.rpartition(".")[2] in names)
