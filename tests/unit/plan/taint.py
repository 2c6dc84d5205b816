"""Every text of the written racks, one after the other, with characters of a shell in it that its pattern forbids.

``python -m tests.unit.plan.taint EVERY RACK…`` plans the first node of each rack once for every EVERY-th text of its
files, with the patterns switched off, and prints a line for each: where the text stands unquoted in a command, or
``refused``, ``quoted`` or ``absent``.
"""

from __future__ import annotations

import copy
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pydantic
import yaml

_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_SPECIAL = set("'\"$`;&|<>()")
MARK = "RPT'\"$(id);`id`&|>RPT"
ROOT = Path(__file__).resolve().parents[3]
PLANS = ROOT / "tests/data/plans"


def without_patterns() -> None:
    """Types that the package defines from now on have no patterns."""
    constraints, after = pydantic.StringConstraints, pydantic.AfterValidator

    def loose(**options: Any) -> Any:
        return constraints(**{**options, "pattern": None})

    def validator(function: Any) -> Any:
        return after((lambda value: value) if function.__name__ in ("_interface", "_plain_path") else function)

    pydantic.StringConstraints, pydantic.AfterValidator = loose, validator  # type: ignore[misc, assignment]


def strings(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all texts."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if isinstance(value, str):
            yield (*path, key)
        yield from strings(value, (*path, key))


def changed(data: Any, path: tuple[Any, ...]) -> Any:
    result = copy.deepcopy(data)
    holder = result
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] += MARK
    return result


class Word(str):
    """A word of a script, decoded; ``active`` has the positions of characters that no quotes protect."""

    active: frozenset[int]


def words(script: str) -> Iterator[Word]:
    """Words of a shell script, without comments; a substitution begins a new word, and so does a here-document."""
    decoded: list[str] = []
    active: set[int] = set()
    states, at, ends = [""], 0, list[tuple[str, bool]]()

    def word() -> Word:
        result = Word("".join(decoded))
        result.active = frozenset(active)
        decoded.clear()
        active.clear()
        return result

    def add(char: str, protected: bool) -> None:
        if not protected:
            active.add(len(decoded))
        decoded.append(char)

    while at < len(script):
        char, state = script[at], states[-1]
        at += 1
        if state == "'":
            if char == "'":
                states.pop()
            else:
                add(char, True)
        elif char == "\\" and at < len(script):
            if state == '"' and script[at] not in '$`"\\\n':
                add(char, True)
            add(script[at], True)
            at += 1
        elif script.startswith("$(", at - 1) and MARK[4:9] not in script[at - 1 : at + 5]:
            yield word()
            states.append("")
            at += 1
        elif char == ")" and state == "" and len(states) > 1:
            yield word()
            states.pop()
        elif state == '"':
            if char == '"':
                states.pop()
            else:
                add(char, char not in "$`")
        elif char in "'\"":
            states.append(char)
        elif char == "#" and not decoded:
            at = script.find("\n", at) if "\n" in script[at:] else len(script)
        elif match := _HERE.match(script, at - 1):
            ends.append((match[2], bool(match[1])))
            at = match.end()
        elif char in " \t\n;&|<>()":
            yield word()
            if char == "\n" and ends:
                for end, protected in ends:
                    body = re.compile(rf"(?ms)(.*?)^\t*{end}$").match(script, at)
                    for inner in body[1] if body else "":
                        add(inner, protected or inner not in "$`")
                    at = body.end() if body else at
                    yield word()
                ends.clear()
        else:
            add(char, False)
    yield word()


def unquoted(script: str) -> str | None:
    """The first word in which the mark is not protected from the shell; None without one."""
    before = ""
    for word in words(script):
        if "RPT" in word and _SPECIAL & set(word):
            start = word.find(MARK)
            nested = " " in word and (start < 0 or before == "eval" or re.fullmatch(r"-\w*c", before))
            if nested:
                if inner := unquoted(word):
                    return inner
            elif start < 0 or {*range(start + 3, start + len(MARK) - 3)} & word.active:
                return str(word)
        before = word or before
    return None


def main(every: int, *names: str) -> None:
    """``every``: only each such case, for a shorter run."""
    without_patterns()
    from rackproof.configure import plan_reader

    listener = plan_reader.Listener()
    plan_reader.start(listener)

    def planned(folder: Path) -> dict[str, Any]:
        deploy = str(ROOT / "deploys/cluster.py")
        return plan_reader._planned(f"@recording/{folder}", deploy, (), (), True, listener)

    for name in names:
        tainted(name, every, planned)


def tainted(name: str, every: int, planned: Callable[[Path], dict[str, Any]]) -> None:
    """The cases of one rack."""
    rack = yaml.safe_load((PLANS / name / "rack.yaml").read_text())
    first = next(iter(rack["nodes"]))
    rack["nodes"] = {first: rack["nodes"][first]}
    documents = {
        "rack.yaml": rack,
        rack["architecture"]: yaml.safe_load((PLANS / name / rack["architecture"]).read_text()),
    }
    cases = [(file, path) for file, data in documents.items() for path in strings(data)]
    for file, path in cases[::every]:
        if path[-1] in ("architecture", "extends", "apiVersion") or "groups" in path:
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / name
            place.mkdir()
            for item in (PLANS / name).iterdir():
                if item.name not in documents:
                    (place / item.name).symlink_to(item)
            for other, data in documents.items():
                text = changed(data, path) if other == file else data
                (place / other).write_text(yaml.safe_dump(text, width=10_000))
            answer = planned(place)
        operations = [operation for node in answer.get("nodes", ()) for operation in node["operations"]]
        commands = [command for operation in operations for command in operation["commands"] if "RPT" in command]
        wrong = next((text for command in commands if (text := unquoted(command))), None)
        refused = answer.get("error") or next((o["refused"] for o in operations if o["refused"]), None)
        outcome = f"unquoted: {wrong}" if wrong else "quoted" if commands else "refused" if refused else "absent"
        print(json.dumps([name, f"{file}:{'.'.join(map(str, path))}", outcome, str(refused)[:200]]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
