"""A YAML document that keeps the line number of every key, for error messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import yaml

from rackproof.core.architecture.nesting import check_size
from rackproof.core.architecture.problem import KeyPath, Problem
from rackproof.core.wording import and_more
from rackproof.errors import ArchitectureError

# libyaml is ten times faster; messages of the pure parser differ slightly.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Document:
    """``data`` is what the text says; ``name`` stands for the file in errors.

    Raises ArchitectureError for invalid YAML, an empty text, a duplicate key, and aliases that expand to too much.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        loader = None
        try:
            check_size(text, name, _Loader)
            loader = _Loader(text)
            root = loader.get_single_node()
            if root is None:
                raise ArchitectureError(f"{name}:1: the file is empty")
            for problem, line in _repeated_keys(root, (), ()):
                raise ArchitectureError(f"{name}:{line}: {dotted(problem.path)}: {problem.message}")
            self.data: Any = _constructed(loader, root, name)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = f"{name}:{mark.line + 1}" if mark else name
            raise ArchitectureError(f"{place}: not YAML: {one_line(error.problem or str(error))}") from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise ArchitectureError(f"{name}:{line}: not YAML: {error.reason}") from None
        finally:
            if loader is not None:
                loader.dispose()
        # after construct_document, which has put merged keys into their places
        self._lines: dict[KeyPath, int] = dict(_lines(root, (), ()))

    def known_part(self, path: KeyPath) -> KeyPath:
        """The longest prefix of ``path`` that exists in the text."""
        while path and path not in self._lines:
            path = path[:-1]
        return path

    def place(self, path: KeyPath) -> tuple[str, int]:
        """File and line (from 1) of ``path``, or of its nearest existing parent."""
        return self.name, self._lines.get(self.known_part(path), 1)

    def sentence(self, wrong: Sequence[Problem]) -> str:
        """One line: the first of the problems, and how many more there are."""
        return complaint(self, wrong)


class Placed(Protocol):
    """One document, or several merged ones, with the line of every value."""

    name: str
    data: Any

    def known_part(self, path: KeyPath) -> KeyPath: ...

    def place(self, path: KeyPath) -> tuple[str, int]: ...


def complaint(document: Placed, wrong: Sequence[Problem]) -> str:
    """One line: the first of the problems in the order of the file, and how many more there are."""
    own = document.name

    def order(problem: Problem) -> tuple[bool, str, int]:
        name, line = document.place(problem.path)
        return name != own, name, line

    first, *others = sorted(wrong, key=order)
    name, line = document.place(first.path)
    where = f"{dotted(first.path, document.data)}: " if first.path else ""
    through = "" if name == own else f" (extended by {own})"
    return f"{name}:{line}: {where}{one_line(first.message)}{through}{and_more(len(others))}"


def dotted(path: KeyPath, data: Any = None) -> str:
    """``storage.nfs-tcp.options[2]``; items of a list that have an ``id`` are shown by it."""
    shown = ""
    for key in path:
        if isinstance(data, dict):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int) and key < len(data):
            data = data[key]
        else:
            data = None
        if isinstance(key, int):
            shown += f"[{data['id'] if isinstance(data, dict) and isinstance(data.get('id'), str) else key}]"
        else:
            shown += f".{key}" if shown else key
    return shown


def one_line(text: str) -> str:
    return " ".join(text.split())


def _constructed(loader: Any, root: yaml.Node, name: str) -> Any:
    """The Python value. Raises ArchitectureError, with the line, for a scalar that does not fit its type."""
    for node in _scalars(root):
        try:
            loader.construct_object(node)
        except yaml.YAMLError:
            raise
        except (ValueError, LookupError, AttributeError, OverflowError) as error:
            # the date 2026-13-01, or a tag such as !!bool before what is neither true nor false
            kind = node.tag.rpartition(":")[2]
            place = f"{name}:{node.start_mark.line + 1}"
            raise ArchitectureError(f"{place}: not YAML: '{one_line(node.value)[:60]}' is no {kind}") from error
    return loader.construct_document(root)


def _scalars(root: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """Every scalar once, keys of mappings included; merge keys have no value of their own."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            if node.tag != "tag:yaml.org,2002:merge":
                yield node
        elif isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        else:
            waiting.extend(part for pair in node.value for part in pair)


def _repeated_keys(node: yaml.Node, path: KeyPath, above: tuple[int, ...]) -> Iterator[tuple[Problem, int]]:
    if id(node) in above:  # an alias to its own parent
        return
    above = (*above, id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated_keys(item, (*path, index), above)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    yield Problem((*path, key.value), f"is in line {seen[key.value]} already"), line
                seen[key.value] = line
            yield from _repeated_keys(value, (*path, str(key.value)), above)


def _lines(node: yaml.Node, path: KeyPath, above: tuple[int, ...]) -> Iterator[tuple[KeyPath, int]]:
    if not path:
        yield path, node.start_mark.line + 1
    if id(node) in above:
        return
    above = (*above, id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*path, index), item.start_mark.line + 1
            yield from _lines(item, (*path, index), above)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield (*path, key.value), key.start_mark.line + 1
                yield from _lines(value, (*path, key.value), above)
