# mypy: ignore-errors
"""The common start of programs on several nodes, and what ends one early. Runs on the nodes, beside the program; needs
nothing of rackproof.

A program that is ready leaves an empty file START.JOB; one that ends before leaves its error there. The controller
then writes START: the moment in seconds since 1970 by this node's clock, or why there is no start.
"""

import contextlib
import os
import time

POLL_S = 0.05


class Fault(Exception):
    """Ends a program, with one line for the user."""


def report(config, why=""):
    """Tell the controller that this program is ready, or why it ended."""
    path = f"{config['start_file']}.{config['job']}"
    with contextlib.suppress(OSError):  # its folder is gone: the run is over
        with open(f"{path}.new", "w") as file:
            file.write(why)
        os.replace(f"{path}.new", path)


def told(config):
    """The moment that the controller has told, seconds since 1970; None before. Raises Fault if there is none."""
    try:
        with open(config["start_file"]) as file:
            text = file.read().strip()
    except FileNotFoundError:
        return None
    try:
        return float(text)
    except ValueError:
        raise Fault(text) from None


def common_start(config, check=lambda: None):
    """Report, then wait. The moment by this node's clock and by ``time.monotonic``. Raises Fault.

    ``check`` is called while it waits, and may raise what ends the program.
    """
    report(config)
    limit_s = config["start_limit_s"]
    until_s = time.monotonic() + limit_s
    while (start_at := told(config)) is None:
        check()
        if time.monotonic() > until_s:
            raise Fault(f"no common start within {limit_s:g} s")
        time.sleep(POLL_S)
    wall_s, own_s = time.time(), time.monotonic()
    if start_at < wall_s:
        raise Fault(f"it was told of the common start {wall_s - start_at:.1f} s after it: the node is busy")
    return start_at, own_s + start_at - wall_s
