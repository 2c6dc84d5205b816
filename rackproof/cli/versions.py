"""``rackproof versions``: check and lock version sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rackproof.atomic_write import write_output
from rackproof.cli.options import limit_option
from rackproof.cli.terminal import say
from rackproof.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, VersionSetError
from rackproof.read_file import read_input

if TYPE_CHECKING:
    from rackproof.core.versions import VersionSet

ASK_TIMEOUT_S = 120.0


@click.group()
def versions() -> None:
    """Version sets: kernel, drivers, firmware and clients in one locked file (versions.lock.yaml)."""


@versions.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--architecture", help="Also look for conflicts with this architecture (id or file).")
@click.pass_context
def check(ctx: click.Context, file: Path, architecture: str | None) -> None:
    """Check FILE for contradictions, and with --architecture for conflicts between vendors.

    Exit status: 0 no problem, 1 a contradiction or conflict, 3 the file is invalid.
    """
    from rackproof import architectures
    from rackproof.core.versions.conflicts import find_conflicts
    from rackproof.core.versions.consistency import contradictions
    from rackproof.core.versions.document import unpinned
    from rackproof.version_sets import load_versions

    version_set = load_versions(file, locked=False)
    arch = architectures.load(architecture).model if architecture else None
    _table(version_set)
    problems = [contradiction.sentence for contradiction in contradictions(version_set)]
    if arch is not None:
        for name, platform in version_set.platforms.items():
            problems += [
                f"{name}: conflict {conflict.sentence}" for conflict in find_conflicts(arch, platform.components)
            ]
    for problem in problems:
        say(problem, err=True)
    missing = unpinned(version_set)
    state = "locked" if version_set.locked else f"a draft (downloads without digest: {len(missing)})"
    say(f"{file}: {state}, {len(problems)} problem(s)")
    ctx.exit(EXIT_FAILED if problems else EXIT_OK)


@versions.command()
@click.argument("source", metavar="INVENTORY|FILE")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="File to write the set to.")
@click.option("--from", "draft", type=click.Path(path_type=Path, dir_okay=False),
              help="Copy repositories and keys from this set.")  # fmt: skip
@click.option("--name", help="Name of the set.  [default: that of the output file]")
@limit_option
@click.pass_context
def lock(
    ctx: click.Context, source: str, output: Path | None, draft: Path | None, name: str | None, limit: tuple[str, ...]
) -> None:
    """Write what is installed on the nodes of INVENTORY as a version set, or lock the draft FILE (*.yaml).

    Changes nothing on nodes. If nodes of one operating system differ, they are reported and nothing is written. If
    downloads lack digests, they are listed, and the set stays a draft.

    Exit status: 0 locked, 1 nodes differ or the set contradicts itself, 2 a node did not answer or the set stays a
    draft, 3 usage.
    """
    if source.endswith((".yaml", ".yml")):
        _lock_file(Path(source), output)
        return
    if output is None:
        raise click.UsageError("-o FILE is missing: the file to write the set to")
    ctx.exit(_lock_nodes(source, output, draft, name or output.name.partition(".")[0], limit))


def _lock_file(file: Path, output: Path | None) -> None:
    from rackproof.core.versions.consistency import contradictions
    from rackproof.core.versions.document import read_versions, sealed

    sealed_text = sealed(read_input(file, VersionSetError), str(file))
    problems = contradictions(read_versions(sealed_text, str(file)))
    if problems:
        raise VersionSetError(f"{file}: {problems[0].sentence}; a set that contradicts itself is not locked")
    write_output(output or file, sealed_text, VersionSetError)
    say(f"{output or file}: locked")


def _lock_nodes(inventory: str, output: Path, draft: Path | None, name: str, limit: tuple[str, ...]) -> int:
    from pydantic import ValidationError

    from rackproof.core.rack import Rack, fold
    from rackproof.core.versions.capture import Captured, assemble, differences_of
    from rackproof.core.versions.consistency import contradictions
    from rackproof.core.versions.document import sealed, to_text, unpinned
    from rackproof.inventory import load_rack
    from rackproof.parse.installed import CAPTURE_COMMAND, parse_installed_versions
    from rackproof.remote.fleet import Fleet
    from rackproof.version_sets import load_versions

    base = load_versions(draft, locked=False) if draft else None
    rack = load_rack(inventory)
    rack = Rack(rack.source, rack.select(limit))
    with Fleet(rack) as fleet:
        answers = fleet.run({node.name: CAPTURE_COMMAND for node in rack.nodes}, ASK_TIMEOUT_S)
    captures: dict[str, Captured] = {}
    silent = []
    for node, answer in answers.items():
        try:
            if not answer.ok:
                raise ValueError(answer.why)
            captures[node] = parse_installed_versions(answer.stdout.decode(errors="replace"))
        except ValueError as error:
            say(f"{node}: versions not read: {error}", err=True)
            silent.append(node)
    if silent:
        say(f"not locked: versions of {fold(silent)} are missing", err=True)
        return EXIT_INCOMPLETE
    try:
        deviating = differences_of(captures)
        version_set = None if deviating else assemble(name, captures, base)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise VersionSetError(
            f"the installed versions do not make a valid set: {first['loc']}: {first['msg']}"
        ) from None
    except ValueError as error:
        raise VersionSetError(f"the installed versions do not make a valid set: {error}") from None
    for deviation in deviating:
        say(deviation.sentence, err=True)
    if version_set is None:
        say(f"not locked: {fold({deviation.node for deviation in deviating})} differ from their peers", err=True)
        return EXIT_FAILED
    problems = contradictions(version_set)
    for problem in problems:
        say(problem.sentence, err=True)
    text = to_text(version_set)
    pinned = not unpinned(version_set) and not problems
    write_output(output, sealed(text, str(output)) if pinned else text, VersionSetError)
    _table(version_set)
    if problems:
        say(f"{output}: written as a draft: it contradicts itself")
        return EXIT_FAILED
    if not pinned:
        say(f"{output}: a draft; fill in {', '.join(unpinned(version_set))}, then rackproof versions lock {output}")
        return EXIT_INCOMPLETE
    say(f"{output}: locked, from {fold(captures)}")
    return EXIT_OK


def _table(version_set: VersionSet) -> None:
    for name, platform in version_set.platforms.items():
        say(f"{name}:")
        for key, component in platform.components.named():
            source = "" if component.repository == "distribution" else f" from {component.repository}"
            say(f"  {key:<20} {component.version:<28} {len(component.packages)} package(s){source}")
        for firmware in platform.components.nic_firmware:
            say(f"  {'firmware':<20} {firmware.version:<28} {firmware.psid or firmware.model}")
