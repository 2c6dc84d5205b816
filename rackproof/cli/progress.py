"""Progress displays of a run: live on a terminal, plain lines, JSON lines, or none."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from rackproof.run.display import Display


def clock(seconds: float) -> str:
    """``1:05``; whole seconds."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    return f"{minutes}:{rest:02d}"


SIGN_OF_LIFE_S = 30.0
"""Minimum seconds between two log lines about steps without a count."""


WAITING_SHOWN_S = 12.0
"""Seconds for which a line about silent nodes stays; the next one comes after 10."""


class Plain(Display):
    """One line per event, for logs and pipes; at most one per ``SIGN_OF_LIFE_S`` about steps without a count."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._last_sign = time.monotonic()

    def _print(self, text: str) -> None:
        self._last_sign = time.monotonic()
        self._console.print(
            f"[{clock(time.monotonic() - self._began):>5}] {text}", markup=False, highlight=False, soft_wrap=True
        )

    def stage(self, name: str, estimate_s: float | None) -> None:
        self._print(f"{name}" + (f" (about {clock(estimate_s)})" if estimate_s else ""))

    def step(self, title: str, index: int, total: int, left_s: float | None) -> None:
        if total:
            self._print(f"  {index}/{total} {title}" + (f", about {clock(left_s)} left" if left_s is not None else ""))
        elif time.monotonic() - self._last_sign >= SIGN_OF_LIFE_S:
            self._print(f"  {title}")

    def waiting(self, text: str) -> None:
        self._print(f"  {text}")

    def line(self, text: str) -> None:
        self._print(f"  {text}")


class JsonLines(Display):
    """One JSON object per event on standard error; the result goes to standard output."""

    def _put(self, **event: Any) -> None:
        print(json.dumps(event, ensure_ascii=False), file=sys.stderr, flush=True)

    def stage(self, name: str, estimate_s: float | None) -> None:
        self._put(event="stage", stage=name, estimate_s=estimate_s)

    def step(self, title: str, index: int, total: int, left_s: float | None) -> None:
        self._put(event="step", title=title, index=index, total=total, left_s=left_s)

    def waiting(self, text: str) -> None:
        self._put(event="waiting", text=text)

    def line(self, text: str) -> None:
        self._put(event="line", text=text)


class Rich(Display):
    """Lines of finished stages scroll; the current stage stays at the bottom with its clock."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._stage_began = self._step_began = time.monotonic()
        self._stage = self._title = ""
        self._estimate: float | None = None
        self._left: float | None = None
        self._position = ""
        self._spinner = Spinner("dots")
        self._waiting, self._waiting_since = "", 0.0

    def stage(self, name: str, estimate_s: float | None) -> None:
        self._stage, self._estimate, self._left, self._title, self._position = name, estimate_s, None, "", ""
        self._stage_began = time.monotonic()
        self._console.print(f"[bold]{name}[/bold]" + (f" [dim]about {clock(estimate_s)}[/dim]" if estimate_s else ""))

    def step(self, title: str, index: int, total: int, left_s: float | None) -> None:
        self._title, self._left, self._step_began = title, left_s, time.monotonic()
        self._position = f"{index}/{total} " if total else ""

    def waiting(self, text: str) -> None:
        self._waiting, self._waiting_since = text, time.monotonic()

    def line(self, text: str) -> None:
        self._console.print(f"  {escape(text)}", highlight=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        now = time.monotonic()
        left = None
        if self._left is not None:
            left = self._left - (now - self._step_began)
        elif self._estimate is not None:
            left = self._estimate - (now - self._stage_began)
        remaining = "" if left is None else f", about {clock(left)} left" if left > 0 else ", longer than expected"
        waiting = self._waiting if now - self._waiting_since < WAITING_SHOWN_S else ""
        row = Table.grid(padding=(0, 1))
        row.add_row(
            self._spinner,
            Text(self._stage, style="bold cyan"),
            Text(f"{self._position}{waiting or self._title}", overflow="ellipsis", no_wrap=True),
            Text(
                f"{clock(now - self._stage_began)}{remaining}, {clock(now - self._began)} in total",
                style="dim",
                no_wrap=True,
            ),
        )
        yield row


@contextmanager
def display(quiet: bool, as_json: bool) -> Iterator[Display]:
    """The display for the options: JSON lines, none, live on a terminal, plain lines otherwise."""
    console = Console(stderr=True)
    if as_json:
        yield JsonLines()
    elif quiet:
        yield Display()
    elif console.is_terminal:
        rich = Rich(console)
        with Live(rich, console=console, refresh_per_second=8, transient=True):
            yield rich
    else:
        yield Plain(console)
