"""``rackproof bench | certify | judge``; ``validate`` uses the same functions to run."""

from __future__ import annotations

import json
import logging
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

import click

from rackproof import architectures, kit
from rackproof.architectures import LoadedArchitecture, architecture_of
from rackproof.bench.announced import announced
from rackproof.bench.forecast import storage_lines, total_s, unknown_bytes, writings
from rackproof.bench.gaps import plan_gaps
from rackproof.bench.plan import plan_steps, refuse_wrong_inputs
from rackproof.cli.earlier import earlier_run
from rackproof.cli.interrupted import Interrupted
from rackproof.cli.options import (
    architecture_option,
    options,
    output_option,
    profile_option,
    progress_option,
    quiet_option,
)
from rackproof.cli.outputs import PAGE, VerdictKind, judged, write_outputs
from rackproof.cli.progress import clock, display
from rackproof.cli.terminal import print_document, say
from rackproof.cli.unrecorded import clean
from rackproof.core.evidence import Record
from rackproof.core.rack import Rack
from rackproof.core.visible import shown
from rackproof.core.wording import counted, scaled
from rackproof.errors import EXIT_FAILED, ArchitectureError, EvidenceWriteError, RunError
from rackproof.evidence.folder import (
    changed_since,
    check_resumable,
    find_resumable,
    find_run,
    info_of,
    new_folder,
    run_folder,
    stored_architecture,
)
from rackproof.evidence.store import EVIDENCE, read_trusted
from rackproof.inventory import load_rack
from rackproof.remote.interrupt import again
from rackproof.remote.redaction import redact
from rackproof.report.certificate import Certificate
from rackproof.report.quantities import moment
from rackproof.run.display import Display
from rackproof.run.stages import Run
from rackproof.validation.run import unused_validators, validators_folder

RUN_LOG = "run.log"
take_over_option = click.option("--take-over", metavar="RUN", help="Take the nodes from another run that has ended.")


_options = options(
    click.argument("inventory"), architecture_option, output_option, quiet_option, progress_option, take_over_option
)


validators_option = click.option(
    "--validators",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Use the validators in DIR instead of the kit's; the certificate names them.",
)


def chosen_validators(folder: Path | None) -> Path | None:
    """The folder, checked; prints a line if the working directory has validators that are not used."""
    validators_folder(folder)
    if folder is None and (line := unused_validators()):
        say(line, err=True)
    return folder


@click.command()
@_options
@profile_option
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print steps, durations, commands (of a first node), space and bytes written; connect to no node.",
)
@click.option("--clean", "only_clean", is_flag=True, help="Remove what an interrupted run left on storages; no run.")
@click.pass_context
def bench(
    ctx: click.Context, inventory: str, architecture: str | None, output: Path, quiet: bool, as_json: bool,
    take_over: str | None, profile: str | None, dry_run: bool, only_clean: bool,
) -> None:  # fmt: skip
    """Measure the rack of INVENTORY.

    With --clean the exit status is 0 if no file of the profile's storage benchmarks stays on the nodes, otherwise 1.
    """
    if only_clean and dry_run:
        raise click.UsageError("--dry-run connects to no node, --clean removes files there: give one of them")
    if only_clean or dry_run:
        rack = load_rack(inventory)
        asked = (rack, architecture_of(rack, architecture), profile or default_profile(rack))
        if only_clean:
            ctx.exit(0 if clean(*asked) else EXIT_FAILED)
        for line in _forecast(*asked):
            say(line)
        return
    run = prepare(inventory, architecture, output, profile, None, ("connect", "bench"))
    run.take_over = take_over
    finish(run, quiet, as_json, only="criterion")


@click.command()
@_options
@profile_option
@click.option("--resume", metavar="RUN", help="Continue an interrupted run: its path, its name, or `latest`.")
@click.option(
    "--continue",
    "go_on",
    is_flag=True,
    help="Resume the latest run of this rack and architecture that has gaps; do nothing where it is certified.",
)
@click.option("--no-deploy", is_flag=True, help="Skip the deploy.")
@validators_option
def certify(
    inventory: str, architecture: str | None, output: Path, quiet: bool, as_json: bool, take_over: str | None,
    profile: str | None, resume: str | None, go_on: bool, no_deploy: bool, validators: Path | None,
) -> None:  # fmt: skip
    """Deploy, validate, measure and judge the rack of INVENTORY."""
    if go_on and resume:
        raise click.UsageError("--continue finds the run itself: give it or --resume, not both")
    if go_on:
        rack = load_rack(inventory)
        run_before = earlier_run(
            output, rack, architecture_of(rack, architecture), profile or default_profile(rack), validators
        )
        if run_before is not None and run_before.certificate is not None and run_before.next == "nothing":
            if as_json:
                _tell(run_before.folder, run_before.certificate, whole=True, as_json=True)
            say(f"CERTIFIED already, on {moment(run_before.certificate.finished)}: {run_before.folder / PAGE}")
            if run_before.certificate.architecture.differs:
                say(run_before.certificate.headline)
            return
        if run_before is not None and run_before.why:
            say(f"a new run begins: {run_before.why}", err=True)
        resume = str(run_before.folder) if run_before is not None and run_before.next == "resume" else None
    stages = ("connect", "validate", "bench") if no_deploy else ("connect", "deploy", "validate", "bench")
    run = prepare(inventory, architecture, output, profile, resume, stages)
    run.validators, run.take_over = chosen_validators(validators), take_over
    finish(run, quiet, as_json, whole=True)


@click.command()
@click.argument("run")
@click.option("--architecture", help="Judge against this id or file as it is now.")
@output_option
@click.option("--json", "as_json", is_flag=True, help="The result as JSON on stdout.")
@validators_option
def judge(run: str, architecture: str | None, output: Path, as_json: bool, validators: Path | None) -> None:
    """Judge RUN (a path, a name under reports/, or `latest`) from its evidence; connect to no node.

    Without --architecture the run is judged against the architecture stored with it.
    """
    folder = find_run(output, run)
    trusted = read_trusted(folder)
    if trusted.broken and not trusted.records:
        raise RunError(f"{folder / EVIDENCE}: {trusted.broken}; nothing before it can be judged")
    info = info_of(trusted.records)
    reference = architectures.load(architecture) if architecture else stored_architecture(folder, info)
    if not architecture and (changed := changed_since(info)):
        say(changed, err=True)
    certificate = judged(
        trusted.records,
        reference,
        broken=trusted.broken,
        cut_off=trusted.cut_off,
        folder=folder,
        say=lambda line: say(line, err=True),
        validators=validators,
    )
    write_outputs(folder, certificate, whole=True)
    _tell(folder, certificate, whole=True, as_json=as_json)


def prepare(
    inventory: str,
    architecture: str | None,
    output: Path,
    profile: str | None,
    resume: str | None,
    stages: Sequence[str],
) -> Run:
    rack = load_rack(inventory)
    if not resume:
        reference = architecture_of(rack, architecture)
        return Run(run_folder(output, inventory), rack, reference, profile or default_profile(rack), Display(), stages)

    @cache  # `latest` may look at many runs
    def reference_of(id_: str) -> LoadedArchitecture:
        return architecture_of(rack, architecture) if architecture else _architecture_with(id_, rack)

    def refuse(records: Sequence[Record]) -> None:
        info = info_of(records)
        try:
            check_resumable(info, rack, reference_of(info.architecture), profile or info.profile)
        except ArchitectureError as error:
            if architecture:
                raise
            raise RunError(f"{info.run}: began with --architecture, name it again: {error}") from None

    folder, info = find_resumable(output, resume, refuse, inventory)
    reference = reference_of(info.architecture)
    return Run(folder, rack, reference, profile or info.profile, Display(), stages, resume=True)


def _architecture_with(id_: str, rack: Rack) -> LoadedArchitecture:
    """The inventory's architecture if it has this id, otherwise the published one. Raises ArchitectureError."""
    with suppress(ArchitectureError):  # the run may have named another one than the inventory
        own = architecture_of(rack, None)
        if own.model.metadata.id == id_:
            return own
    return architectures.load(id_)


def default_profile(rack: Rack) -> str:
    return "lab" if all(node.virtual for node in rack.nodes) else "full"


def _forecast(rack: Rack, reference: LoadedArchitecture, profile: str) -> Iterator[str]:
    """Lines of a dry run."""
    refuse_wrong_inputs(rack)
    steps = plan_steps(reference.model, profile, rack)
    for step in steps:
        yield f"{clock(step.estimate_s):>8}  {step.id}  {step.title}"
        yield from (f"{'':10}{redact(command)}" for command in step.commands)
    if steps:
        yield "beside these programs, the run sends"
    yield from (f"{'':10}{redact(sent.line)}" for sent in announced(reference.model, profile, rack, steps))
    count = counted(len(steps), "step")
    files = list(writings(reference.model, profile, rack, steps))
    unknown = unknown_bytes(files)
    more = f", and the time to write {scaled(unknown, 'B')} of files" if unknown else ""
    yield f"{clock(total_s(steps, files)):>8}  {count} of profile {profile}{more}"
    yield from (writing.line for writing in files)
    yield from storage_lines(reference.model, profile, rack, steps)
    yield from plan_gaps(reference.model, profile, rack, steps)


def finish(
    run: Run,
    quiet: bool,
    as_json: bool,
    only: VerdictKind | None = None,
    whole: bool = False,
    on_judged: Callable[[list[Record], Certificate], object] = lambda records, certificate: None,
) -> None:
    """Execute and judge the run, write and print the result, and exit with the outcome's status."""
    try:
        with executed(run, quiet, as_json) as records:
            run.display.stage("judge", None)
            certificate = judged(records, run.architecture, only, folder=run.folder, validators=run.validators)
            write_outputs(run.folder, certificate, whole)
            on_judged(records, certificate)
    except KeyboardInterrupt:
        raise Interrupted("; ".join(filter(None, (run.left, _files_stay(run), _go_on(run, whole))))) from None
    _tell(run.folder, certificate, whole, as_json)


def _files_stay(run: Run) -> str:
    """Which files stay on the storages after an interrupt, and how to remove them without another run."""
    if not run.storages:
        return ""
    words = ["rackproof", "bench", run.rack.source, "--clean", "--profile", run.profile]
    if {node.data.get("architecture") for node in run.rack.nodes} != {run.architecture.model.metadata.id}:
        words += ["--architecture", kit.shown(run.architecture.path)]
    return f"test files stay on {', '.join(run.storages)} for the next run, or remove them with: {shlex.join(words)}"


def _go_on(run: Run, whole: bool) -> str:
    """How to continue after an interrupt."""
    folder = kit.shown(run.folder)
    if not whole:
        return f"its evidence is in {shlex.quote(folder)}; {again()}"
    words = ["rackproof", "certify", run.rack.source, "--resume", folder]
    if not _has_id(run.architecture):
        words += ["--architecture", kit.shown(run.architecture.path)]
    return f"continue with: {shlex.join(words)}"


def _has_id(architecture: LoadedArchitecture) -> bool:
    """Whether an architecture is found by its id."""
    try:
        return architectures.load(architecture.model.metadata.id).sha256 == architecture.sha256
    except ArchitectureError:
        return False


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return shown(redact(super().format(record)))


class _RunLog(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> NoReturn:
        error = sys.exc_info()[1]
        raise EvidenceWriteError(f"{self.baseFilename}: cannot be written ({getattr(error, 'strerror', error)})")


@contextmanager
def executed(run: Run, quiet: bool, as_json: bool) -> Iterator[list[Record]]:
    """Execute a run and yield its evidence; log and progress display are open during the block."""
    if not run.resume:
        run.folder = new_folder(run.folder)
    try:
        handler = _RunLog(run.folder / RUN_LOG, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise EvidenceWriteError(f"{run.folder}: cannot be written ({error.strerror})") from error
    handler.setFormatter(_OneLine("%(asctime)s %(message)s"))
    logger = logging.getLogger("rackproof")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        with display(quiet, as_json) as run.display:
            yield run.execute()
    finally:
        logger.removeHandler(handler)
        with suppress(OSError):  # the disk is full; the line that failed has reported it
            handler.close()


def _tell(folder: Path, certificate: Certificate, whole: bool, as_json: bool) -> None:
    from rich.console import Console

    from rackproof.report.terminal import summary

    page = folder / PAGE if whole else None
    if as_json:
        answer = {
            "run": certificate.run,
            "outcome": certificate.outcome,
            "headline": certificate.headline,
            "exit_status": certificate.exit_status,
            "counts": certificate.counts.model_dump(mode="json"),
            "folder": str(folder),
            "page": str(page) if page else None,
        }
        print_document(json.dumps(answer))
    else:
        summary(
            certificate, Console(), str(page) if page else f"{folder}/verdicts.json (no certificate: one stage only)"
        )
    raise click.exceptions.Exit(certificate.exit_status)
