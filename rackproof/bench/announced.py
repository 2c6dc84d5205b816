"""Commands that a run sends beside the programs of its steps (``Step.commands``), for a dry run: preparation, proofs of
mounts and counters, ways between nodes, and cleaning up. A script is named by its file, with its arguments.

A test drives whole runs and compares: a command that is sent and stands in neither list fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from rackproof.bench import firewall, guard, leftovers, moment, programs, space, user, waiting
from rackproof.bench.collectives import guest_commands, launch, nccl_used
from rackproof.bench.collectives.group_reader import STEP as GROUPS
from rackproof.bench.drives import listing
from rackproof.bench.forecast import CONTAINER, Space, spaces
from rackproof.bench.gpu import diagnosis_end
from rackproof.bench.ingest.caches import RENEW
from rackproof.bench.ingest.datasets import folder_of
from rackproof.bench.ingest.tree_steps import SEED, tree_folder
from rackproof.bench.links import placement
from rackproof.bench.port_proof import reading_command
from rackproof.bench.ports import PROBE
from rackproof.bench.relay import PROGRAM as RELAY
from rackproof.bench.step import Step
from rackproof.bench.storage import commands, connections
from rackproof.bench.storage.commands import DROP, drop_and_state, origin_of, server_state, state_of
from rackproof.bench.storage.fio_clients import STATES
from rackproof.bench.storage.fio_servers import SERVER
from rackproof.bench.throttles import held
from rackproof.bench.user import HOME, JOIN_HOME, OWN_MOUNT
from rackproof.configure import run_lock
from rackproof.core.architecture import Architecture, IngestProfile, Storage
from rackproof.core.load import GPUS, subjects_for
from rackproof.core.programs import PERFTEST
from rackproof.core.rack import Node, Rack, fold
from rackproof.parse.gpu_list import LIST
from rackproof.parse.gpu_load import SAMPLER
from rackproof.parse.identity import FACTS, IDENTITY_COMMAND
from rackproof.remote import clocks
from rackproof.shell import has_script

Has = Callable[[str], bool]

_OWN_MOUNTS: Final = ("connections", "transports", "mounts")
_WITHOUT_FIO: Final = ("gds", "small-files", "metadata", "join")
"""Last parts of the ids of storage steps."""
_MADE: Final = "makes them for the account that measures, without files of earlier benchmarks"


class Sent(NamedTuple):
    """Commands of one purpose."""

    text: str
    nodes: str
    purpose: str
    has: Has
    """Whether a command is one of them."""
    of: Has = lambda step: True
    """Whether the step of an id needs them; the stage itself needs those of every step."""

    @property
    def line(self) -> str:
        return f"{self.text}  # {self.nodes}: {self.purpose}"


def announced(architecture: Architecture, profile_name: str, rack: Rack, steps: Sequence[Step]) -> Iterator[Sent]:
    """Those of these steps. Raises ArchitectureError, InventoryError."""
    places = list(spaces(architecture, profile_name, rack, steps))
    every = [
        *_of_stage(architecture, rack, steps),
        *_of_nodes(architecture),
        *_of_gpus(architecture, rack),
        *_of_storages(architecture, rack, {one.storage: one for one in places}),
        *_of_ingest(architecture, architecture.profiles[profile_name].ingest),
        *_of_files(architecture, rack, places),
    ]
    return (sent for sent in every if any(sent.of(step.id) for step in steps))


def _script(module: str, name: str, nodes: str, purpose: str, *arguments: str, of: Has | None = None) -> Sent:
    has = partial(has_script, module=module, name=name)
    text = " ".join(("/".join((*module.split(".")[1:-1], f"{name}.sh")), *arguments))
    return Sent(text, nodes, purpose, has) if of is None else Sent(text, nodes, purpose, has, of)


def _equal(text: str, nodes: str, purpose: str, of: Has | None = None) -> Sent:
    return Sent(text, nodes, purpose, text.__eq__) if of is None else Sent(text, nodes, purpose, text.__eq__, of)


def _of_stage(architecture: Architecture, rack: Rack, steps: Sequence[Step]) -> Iterator[Sent]:
    """Commands that every run sends, whatever it measures."""
    nodes = fold(node.name for node in rack.nodes)
    yield _equal(FACTS, nodes, "first of all")
    yield _equal(IDENTITY_COMMAND, nodes, "which machine it is, then and at the end")
    lock = "takes the lock, at which a second run on the rack ends"
    yield _script(run_lock.__name__, "run_lock_take", nodes, lock, run_lock.LOCK_FILE)
    if any(node.virtual for node in rack.nodes):
        virtual = fold(node.name for node in rack.nodes if node.virtual)
        yield _script(held.__name__, "clear", virtual, "removes limits that a killed run has left")
        if architecture.scale is not None and (architecture.scale.links or architecture.scale.drives):
            yield _script(held.__name__, "hold", virtual, "sets the limits of scale, and removes them at the end")
            yield _script(held.__name__, "state", virtual, "reads these limits back, before and after each step")
    names = programs.names_of(rack, steps)
    checked = {step.id for step in steps if programs.names_of(rack, [step])}
    whole = "whether these programs are as their packages"
    yield _script(programs.__name__, "programs", nodes, whole, *names, of=checked.__contains__)
    load = "its load, its kernel's messages and its counters of faults, before and after each step"
    yield _script(guard.__name__, "guard", nodes, load)
    yield Sent("bench/state.sh", nodes, "before a starved step is repeated", waiting.STATE.__eq__)
    yield _equal("true", nodes, "whether it answers, before steps and after failures")
    yield Sent(user.TIDY, nodes, "removes all of this but test files, at the end", lambda command: user.TIDY in command)
    yield _script(firewall.__name__, "firewall_sweep", nodes, "likewise")


def _of_nodes(architecture: Architecture) -> Iterator[Sent]:
    """Commands around a step that ask the nodes, not their storage."""
    nodes = "nodes of the step"

    def network(step: str) -> bool:
        return step.startswith("links/") or _ranks(step)

    def carried(step: str) -> bool:
        return _fio(step) or _ranks(step)

    def account(step: str) -> bool:
        return step.startswith(("storage/", "ingest/")) or network(step)

    def together(step: str) -> bool:
        return step.startswith("ingest/") or _ends("small-files", "metadata")(step)

    made = "makes the account that measures, and its home"
    yield _script(user.__name__, "user", nodes, made, user.USER, HOME, of=account)
    copies, put = "copies of the programs that steps name, and of what these import", f"umask 077; cat >{HOME}/"
    yield Sent(f"{put}….py", nodes, copies, _begins(put), account)
    yield Sent(
        f"python3 -I {RELAY} serve {HOME}", nodes, "carries connections between them over ssh; `listen` on the first",
        _begins(f"exec python3 -I {RELAY} "), carried,
    )  # fmt: skip
    yield _script(launch.__name__, "mpi_probe", nodes, "which MPIs there are", of=_ranks)
    yield _script(
        placement.__name__, "placement", nodes, "where adapters are", PERFTEST, of=lambda step: "/rdma-" in step
    )
    yield _equal(firewall.ADDRESSES, nodes, "for the firewall", network)
    yield _script(firewall.__name__, "firewall", nodes, "lets only them reach the step's ports", of=network)
    if architecture.fabric is not None:
        reading = reading_command(architecture.fabric, [0])
        begin = reading.partition(" /sys/")[0]
        counters = "counters of its ports, before and after each test"
        yield Sent(reading, nodes, counters, _begins(begin), network)
    for tool, of in (("ss", _begins("links/")), ("grep", _fio)):
        yield Sent(f"{PROBE}{tool} …", nodes, "until a server listens", _begins(f"{PROBE}{tool} "), of)
    common = f"start={HOME}/start-…"
    waits = "whether the programs are ready for the common start"
    yield _script(moment.__name__, "ready", nodes, waits, common, of=together)
    yield _script(moment.__name__, "start", nodes, "the moment of it", common, of=together)
    yield _equal(clocks.READ, nodes, "its clock, for that", lambda step: together(step) or step.startswith("links/to-"))
    drives = "lists the drives, and reads the counters of one around its use"
    yield _script(listing.__name__, "state", nodes, drives, of=lambda step: step.startswith(("drives/", "osds/")))


def _of_gpus(architecture: Architecture, rack: Rack) -> Iterator[Sent]:
    """Around programs on real GPUs."""
    infos = [node for node in rack.nodes if GPUS in subjects_for(architecture, node.groups, node.simulated_gpus)]
    if not infos:
        return
    nodes = fold(node.name for node in infos)
    listed = "its GPUs"
    yield _equal(LIST, nodes, listed, lambda step: step.startswith(("gpu/", "ingest/")))
    yield _equal(SAMPLER, nodes, "links and clocks of its GPUs, while a program loads them", _loads_gpus)
    yield _script(nccl_used.__name__, "nccl_log", nodes, "what NCCL has told about its ways, after a run", of=_ranks)
    yield _equal(diagnosis_end.LISTED, nodes, "whether DCGM's tests run", lambda step: step.startswith("gpu/"))
    ends = "ends those that dcgmi has left"
    yield _script(diagnosis_end.__name__, "diagnosis_end", nodes, ends, of=lambda step: step.startswith("gpu/"))
    guests = [
        ("guest_side", "the node or its guest: what it is and what it did, before and after"),
        ("guest_off", "shuts the domain down, and waits until the node has its GPUs again"),
        ("guest_keeper", "starts the domain, and shuts it down with the connection"),
        ("guest_wait", "until the guest answers"),
        ("guest_ssh", "runs a command in the guest"),
    ]
    for name, purpose in guests:
        yield _script(guest_commands.__name__, name, nodes, purpose, of=lambda step: "/guest/" in step)


def _ranks(step: str) -> bool:
    """Whether a step starts the ranks of a collective."""
    return step.startswith(("collectives/", f"{GROUPS}/")) or step.endswith("/beside-collectives")


def _loads_gpus(step: str) -> bool:
    return _ranks(step) or step.startswith(("gpu/", "ingest/"))


def _of_storages(architecture: Architecture, rack: Rack, places: dict[str, Space]) -> Iterator[Sent]:
    """Folders, proofs of mounts, caches and counters."""
    every = "clients of the storage"
    yield _equal(SERVER, every, "unless it runs since an earlier step", _fio)
    yield _equal(STATES, every, "where one has no result", _fio)
    held_open = "keeps the mounts that the step's mount commands show"
    yield _script(connections.__name__, "own_mount", every, held_open, OWN_MOUNT, of=_ends(*_OWN_MOUNTS))
    yield _equal(connections.GONE, every, "until they are unmounted", _ends(*_OWN_MOUNTS))
    yield _equal(f"mkdir -m 700 -p -- {JOIN_HOME}", every, "for the program that mounts as root", _ends("join"))
    put = f"umask 077; cat >{JOIN_HOME}/"
    yield Sent(f"{put}….py", every, "a copy of it", _begins(put), _ends("join"))
    gone = f"rm -rf -- {JOIN_HOME}"
    yield Sent(gone, every, "and the planted file, after it", _begins(gone), _ends("join"))
    for name, storage in architecture.storage.items():
        clients, servers = storage.clients(rack), [node.name for node in storage.server_nodes(rack)]
        if clients:
            uses = _within(name, "storage", "container", "ingest", "links/to-storage")
            folders = commands.folders_of(storage, clients[0])
            kinds = [kind for kind in (places[name].kinds if name in places else ()) if kind != CONTAINER]
            own = _folders(storage, name, kinds, rack.node(clients[0])) or folders
            yield _script(commands.__name__, "folders", fold(clients), _MADE, *own, of=_begins(f"storage/{name}/"))
            state = drop_and_state(storage, folders, origin_of(architecture, rack, storage))
            around = "before each run; after it, and at the end of a ramp, without dropping caches"
            yield Sent(state, fold(clients), around, lambda command: state_of(command) is not None, uses)
            if servers:
                dropping = _within(name, "storage", "container", "ingest")
                yield _equal(DROP, fold(servers), "before each run", dropping)
                counted, around = server_state(commands.BEFORE), "before and after each run, and at the end of a ramp"
                moving = _within(name, "storage", but=("join",))
                yield Sent(counted, fold(servers), around, _begins(commands.SERVER), moving)


def _of_ingest(architecture: Architecture, profile: IngestProfile | None) -> Iterator[Sent]:
    """Folders of data sets, and of trees that a mount brings in; the steps remove these."""
    if profile is None:
        return
    storages, of = architecture.storage, _begins("ingest/")
    points = [storages[tree.writer].mountpoints[0] for tree in profile.trees.values() if tree.writer is not None]
    own = [tree_folder(point, SEED) for point in dict.fromkeys(points)]
    sets = profile.datasets.items()
    own += [folder_of(storages[dataset.storage], name, dataset) for name, dataset in sets]
    if own:
        yield _script(commands.__name__, "folders", "the first client", _MADE, *own, of=of)
    if kept := [name for name, dataset in sets if storages[dataset.storage].local_cache]:
        renew = f"before a cold epoch of {', '.join(kept)}: FS-Cache forgets what it has"
        yield Sent(f"find … {RENEW}", "clients of the storage", renew, lambda command: RENEW in command, of)


def _of_files(architecture: Architecture, rack: Rack, places: Iterable[Space]) -> Iterator[Sent]:
    """Space for files before the first step, and their end after the last one."""
    for one in places:
        point = architecture.storage[one.storage].mountpoints[0]
        folders = _folders(architecture.storage[one.storage], one.storage, one.kinds, rack.node(one.nodes[0]))
        indexes = [files.entries for files in one.sets if files.entries]
        free = "bytes that are free there, before the first step"
        yield _script(space.__name__, "space", fold(one.nodes), free, point, *folders, *indexes)
        if one.clients:
            yield _script(
                leftovers.__name__, "leftovers", fold(one.clients), "removes them after the last step", *folders
            )


def _folders(storage: Storage, name: str, kinds: Iterable[str], node: Node) -> Sequence[str]:
    """Folders of a node's files of these kinds on a storage of this name."""
    return list(dict.fromkeys(folder for kind in kinds for folder in space.FOLDERS[kind](name, storage, node)))


def _begins(text: str) -> Has:
    return lambda command: command.startswith(text)


def _ends(*names: str) -> Has:
    """Whether a storage step has one of these names."""
    return lambda step: step.startswith("storage/") and step.rpartition("/")[2] in names


def _fio(step: str) -> bool:
    return step.startswith("storage/") and not _ends(*_WITHOUT_FIO)(step)


def _within(name: str, *kinds: str, but: Sequence[str] = ()) -> Has:
    """Whether a step of these kinds is about a storage, and its last part none of ``but``."""
    own = tuple(f"{kind}/{name}/" for kind in kinds)
    return lambda step: f"{step}/".startswith(own) and step.rpartition("/")[2] not in but
