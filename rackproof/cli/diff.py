"""``rackproof diff``: compare recordings of nodes, or of dates."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import click

from rackproof.cli.terminal import say
from rackproof.core.grouping import grouped
from rackproof.core.rack import fold
from rackproof.errors import EXIT_FAILED, EXIT_OK
from rackproof.evidence.recordings import read_recordings
from rackproof.remote.difference import Difference, differences
from rackproof.remote.drift import Deviation, deviations
from rackproof.remote.recording import Recording
from rackproof.remote.recording_folder import read_recording

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@click.argument("before", type=click.Path(path_type=Path))
@click.argument("after", type=click.Path(path_type=Path), required=False)
@click.option("--peers", is_flag=True, help="Compare the nodes of each group with one typical node of it.")
@click.option(
    "--all", "everything", is_flag=True, help="Also show values that always vary: temperatures, counters, times."
)
@click.pass_context
def diff(ctx: click.Context, before: Path, after: Path | None, peers: bool, everything: bool) -> None:
    """Show what differs between BEFORE and AFTER: two folders of recordings, two files, or two runs.

    Folders are compared node by node. Between two nodes, values that always differ are ignored: host names, addresses,
    hardware addresses, serial numbers. Nodes that differ in the same way are shown once. With --peers, nodes whose
    kernel, BIOS, firmware, MTU, sysctl or packages differ from those of most peers are listed first, one line each;
    `rackproof record --drift` records all of these. Exit status: 0 no difference, 1 something differs, 3 usage.
    """
    if peers == (after is not None):
        raise click.UsageError("give two folders or files, or one folder with --peers")
    alone: list[str] = []
    drifted: list[Deviation] = []
    if after is None:
        recordings = _read(before)
        drifted = deviations(recordings)
        pairs = _peers(recordings, {name for deviation in drifted for name in deviation.nodes})
    elif before.is_file() and after.is_file():
        pairs = [(read_recording(before), read_recording(after), ())]
    else:
        pairs, alone = _by_name(_read(before), _read(after))
    folded: dict[tuple[str, Difference], list[str]] = {}
    for a, b, group in pairs:
        against = "" if a.node.name == b.node.name else f" against {a.node.name}"
        for difference in differences(a, b, peers=group, everything=everything):
            folded.setdefault((against, difference), []).append(b.node.name)
    for line in alone:
        say(line)
    for deviation in drifted:
        say(deviation.line, fg="yellow")
    for (against, difference), nodes in folded.items():
        say(f"{fold(nodes)}{against}: {difference.command}", bold=True)
        for line in difference.lines:
            say(f"  {line}", fg=_COLOURS.get(line[:1]))
    different = {name for names in folded.values() for name in names} | {
        n for deviation in drifted for n in deviation.nodes
    }
    say(f"{len(pairs)} compared, " + (f"{fold(sorted(different))} differ" if different else "no difference"))
    ctx.exit(EXIT_FAILED if folded or alone or drifted or not pairs else EXIT_OK)


Pair = tuple[Recording, Recording, "tuple[Recording, ...]"]


def _read(path: Path) -> list[Recording]:
    return [read_recording(path)] if path.is_file() else read_recordings(path)


def _by_name(before: list[Recording], after: list[Recording]) -> tuple[list[Pair], list[str]]:
    """Pairs of recordings of the same node, and lines about nodes in one folder only."""
    left, right = ({r.node.name: r for r in side} for side in (before, after))
    pairs: list[Pair] = [(left[name], right[name], ()) for name in left if name in right]
    alone = [f"{fold(only)}: recorded {when} only" for only, when in (
        ([name for name in left if name not in right], "before"),
        ([name for name in right if name not in left], "after"),
    ) if only]  # fmt: skip
    return pairs, alone


def _peers(recordings: list[Recording], drifted: Set[str]) -> list[Pair]:
    """Pairs of each node with the first node of the same groups that has not drifted."""
    pairs: list[Pair] = []
    for same in grouped((recording.node.groups, recording) for recording in recordings).values():
        reference = next((recording for recording in same if recording.node.name not in drifted), same[0])
        pairs += [(reference, other, tuple(same)) for other in same if other is not reference]
    return pairs
