"""Shell scripts are files beside the modules that run them, and get their values as assignments above the code.

A file ``x.sh`` begins with comments (``# shellcheck shell=sh``, what it does) and names its values, which
shellcheck takes for their declaration::

    : "${device?}" "${limit_s?}"

``script(__name__, "x", device="/dev/sdb", limit_s=60)`` puts quoted assignments in the place of these lines. Files that
define functions are joined with the scripts that call them. ``program`` is a whole file, as it is installed on nodes.
"""

from __future__ import annotations

import re
import shlex
from functools import cache
from importlib.resources import files

_DECLARED = re.compile(r'(?m)(?:^: (?:"\$\{\w+\?\}" ?)+$\n?)+')
_NAME = re.compile(r"\$\{(\w+)\?\}")


def script(module: str, name: str, *arguments: str, **values: str | int) -> str:
    """Body of ``name.sh`` beside ``module`` (its ``__name__``), without the comments above it and without a line end.

    ``values`` become shell variables, ``arguments`` the positional parameters. Raises TypeError when ``values`` are
    not those that the file declares.
    """
    declared, body = _parts(module.rpartition(".")[0], name)
    if set(declared) != set(values):
        raise TypeError(f"{name}.sh declares ({', '.join(declared)}), actual ({', '.join(values)})")
    head = [assignments(**{name: values[name] for name in declared})] if declared else []
    head += [f"set -- {' '.join(map(shlex.quote, arguments))}"] if arguments else []
    return "\n".join([*head, body])


def has_script(text: str, module: str, name: str) -> bool:
    """Whether a command has the body of ``name.sh`` beside ``module``, also as one quoted word."""
    body = _parts(module.rpartition(".")[0], name)[1]
    return body in text or shlex.quote(body)[1:-1] in text


def program(module: str, name: str) -> str:
    """The whole of ``name.sh`` beside ``module``: a program with an interpreter line."""
    return _text(module.rpartition(".")[0], name)


def assignments(**values: str | int) -> str:
    """One line that assigns shell variables."""
    return " ".join(f"{name}={shlex.quote(str(value))}" for name, value in values.items())


def or_fail(message: str) -> str:
    """Shell text behind a command: when the command fails, one line on stderr and exit status 1."""
    return f"|| {{ echo {shlex.quote(message)} >&2; exit 1; }}"


def wait_until(test: str, tries: int, message: str) -> str:
    """Shell line that repeats a test, once a second at most ``tries`` times, and then fails with one line."""
    return f"n=0; until {test}; do n=$((n + 1)); [ $n -lt {tries} ] {or_fail(message)}; sleep 1; done"


@cache
def _text(package: str, name: str) -> str:
    return files(package).joinpath(f"{name}.sh").read_text(encoding="utf-8")


@cache
def _parts(package: str, name: str) -> tuple[tuple[str, ...], str]:
    """Declared names, and the body."""
    lines = _text(package, name).splitlines()
    start = next((at for at, line in enumerate(lines) if line and not line.startswith("#")), len(lines))
    body = "\n".join(lines[start:])
    match = _DECLARED.match(body)
    if match is None:
        return (), body.strip("\n")
    return tuple(_NAME.findall(match[0])), body[match.end() :].strip("\n")


class Script(str):
    """Shell text with the form that a plan shows: ``shown`` has no function libraries, no lock, and no digest of a file
    whose content the plan shows."""

    shown: str

    def __new__(cls, text: str, shown: str) -> Script:
        script = super().__new__(cls, text)
        script.shown = shown
        return script

    @classmethod
    def of(cls, *parts: str) -> Script:
        """The parts, each on lines of its own."""
        shown = [shown_form(part) for part in parts if shown_form(part) or not isinstance(part, Script)]
        return cls("\n".join(parts), "\n".join(shown))


def shown_form(text: str) -> str:
    """How a plan shows a script, or a part of one."""
    return text.shown if isinstance(text, Script) else text
