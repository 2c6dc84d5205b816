"""The knee of a storage: random reads with more and more requests in flight, and at rising rates (Poisson arrivals)
where an entry asks for the load at the knee.

Each load is one run of fio on all clients with the proof of every other run; ``core.knee`` chooses the next load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from rackproof.bench.step import BenchContext, Step, expected
from rackproof.bench.storage.client_runs import SETUP_S, StorageClients, fio_step
from rackproof.bench.storage.knee_reader import (
    CLOSED,
    KNEE,
    OPEN,
    OUTSTANDING,
    TooFewRequests,
    arrivals_of,
    job_name,
    long_enough,
    measured_step,
)
from rackproof.bench.storage.runs import runs_of
from rackproof.core.architecture import FioJob, KneeProfile, Storage
from rackproof.core.evidence import Measurement, Scope
from rackproof.core.fiojob import Layout, render
from rackproof.core.knee import MOST_REPEATED, LoadStep, Search, closed_loop, open_loop, peak_of, smallest
from rackproof.core.wording import counted
from rackproof.parse import ParseError

_LOADS = {CLOSED: 11, OPEN: 10}
"""Typical number of loads of a search."""

Render = Callable[[int], tuple[FioJob, str, int | None]]
"""fio's job at a load, its name, and the arrivals of each process."""


def step(name: str, storage: Storage, profile: KneeProfile, layout: Layout, clients: list[str], arrivals: bool) -> Step:
    """The step of one storage; ``arrivals``: at rising rates, too."""
    id_ = f"storage/{name}/knee"
    labels = {"storage": name, "block_bytes": str(profile.block_bytes)}
    metrics = KNEE if arrivals else (OUTSTANDING,)
    places = [expected(metric, Scope.RACK, clients, labels, id_) for metric in metrics]

    def execute(context: BenchContext) -> Iterator[Measurement]:
        return _Searches(StorageClients(context, name, storage, layout, clients), profile, arrivals).execute(places)

    loads = sum(_LOADS.values()) if arrivals else _LOADS[CLOSED]
    seconds = profile.runs * loads * (profile.runtime_s + profile.ramp_s + SETUP_S)
    who = counted(len(clients), "client", "clients at once")
    title = f"{name}: search for the knee with reads of {profile.block_bytes} B from {who}"
    lowest = partial(render, job_name(name, 1, CLOSED, 1, profile), profile.job.model_copy(update={"numjobs": 1}))
    made = fio_step(storage, clients, places, title, seconds, execute, lowest)
    lines = [_further(closed_loop(profile.processes, profile.most_outstanding), "requests in flight of each client")]
    lines += [_further(open_loop(), "% of the highest rate")] if arrivals else []
    return replace(made, commands=(*made.commands, *(lines if clients else ())))


def _further(search: Search, unit: str) -> str:
    """Line of a dry run on the loads that a search may choose."""
    loads = ", ".join(map(str, search.loads))
    repeated = f"each at most {MOST_REPEATED} times in each of the runs, once more for longer if it has few requests"
    return f"# latencies choose among {loads} {unit}: {repeated}"


class _Searches:
    def __init__(self, clients: StorageClients, profile: KneeProfile, arrivals: bool) -> None:
        self.clients, self.profile, self.arrivals = clients, profile, arrivals

    def execute(self, places: list[Measurement]) -> Iterator[Measurement]:
        clients, arrivals = self.clients, self.arrivals
        clients.write_files()
        with suppress(ParseError):  # the reader names the unusable run
            for number in range(1, self.profile.runs + 1):
                peak = self._closed(number)
                if peak and arrivals:
                    arrivals = self._open(number, peak)
        return clients.results(places)

    def _closed(self, number: int) -> float:
        """A search with requests in flight. Returns the highest rate, 0 if a client is lost. Raises ParseError."""
        profile = self.profile

        def job_of(load: int) -> tuple[FioJob, str, int | None]:
            used = min(load, profile.processes)
            job = profile.job.model_copy(update={"numjobs": used, "iodepth": load // used})
            return job, job_name(self.clients.name, number, CLOSED, load, profile), None

        steps = self._search(closed_loop(profile.processes, profile.most_outstanding), job_of)
        return peak_of(smallest(steps)).rate if steps else 0.0

    def _open(self, number: int, peak: float) -> bool:
        """A search with rates up to ``peak``. Returns whether its runs are usable: a very low rate's are not."""
        profile, count = self.profile, len(self.clients.clients)

        def job_of(percent: int) -> tuple[FioJob, str, int | None]:
            used, arrivals = arrivals_of(peak, percent, count, profile.processes)
            depth = max(1, profile.most_outstanding // used)
            sizes = {"numjobs": used, "iodepth": depth, "runtime_s": long_enough(profile.runtime_s, used * arrivals)}
            job = profile.job.model_copy(update=sizes)
            return job, job_name(self.clients.name, number, OPEN, percent, profile), arrivals

        try:
            self._search(open_loop(), job_of)
        except ParseError:
            return False
        return True

    def _search(self, search: Search, job_of: Render) -> list[LoadStep]:
        """All steps; none once a client is lost, because its load would be missing. Raises ParseError."""
        clients, steps = self.clients, list[LoadStep]()
        while not clients.lost and (load := search.next(steps)) is not None:
            job, name, arrivals = job_of(load)
            try:
                steps += self._steps(job, name, arrivals)
            except TooFewRequests as few:
                if (seconds := long_enough(self.profile.runtime_s, few.per_second)) <= job.runtime_s:
                    raise
                steps += self._steps(job.model_copy(update={"runtime_s": seconds}), name, arrivals)
        return [] if clients.lost else steps

    def _steps(self, job: FioJob, name: str, arrivals: int | None) -> list[LoadStep]:
        """One run; none once a client is lost. Raises TooFewRequests, ParseError."""
        clients = self.clients
        job_file = partial(render, name, job, arrivals=arrivals)
        clients.run(clients.clients, job_file, job.runtime_s + job.ramp_s, again=False)
        if clients.lost:
            return []
        return [measured_step(runs_of(clients.answers)[-1], clients.clients, clients.storage).step]
