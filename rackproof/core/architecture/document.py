"""A YAML document that keeps the line number of every key, for error messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import yaml

from rackproof.core.architecture.nesting import LOADER, check_size
from rackproof.core.architecture.problem import KeyPath, Problem
from rackproof.core.wording import and_more
from rackproof.errors import ArchitectureError


class Placed(Protocol):
    """One document, or several merged ones, with the place of every value. ``name`` is the file in errors."""

    name: str
    data: Any
    _known: Mapping[KeyPath, Any]
    """By path of every value."""

    def place(self, path: KeyPath) -> tuple[str, int]:
        """File and line (from 1) of ``path``, or of its nearest existing parent."""

    def known_part(self, path: KeyPath) -> KeyPath:
        """The longest prefix of ``path`` that is in the text, or in one of the files."""
        while path and path not in self._known:
            path = path[:-1]
        return path

    def refused(self, wrong: Sequence[Problem]) -> ArchitectureError:
        """The error that names the first of the problems in the order of the file, and how many more there are."""

        def order(problem: Problem) -> tuple[bool, str, int]:
            name, line = self.place(problem.path)
            return name != self.name, name, line

        lines = [self._line(problem) for problem in sorted(wrong, key=order)]
        return ArchitectureError(lines[0] + and_more(len(lines) - 1), lines)

    def _line(self, problem: Problem) -> str:
        name, line = self.place(problem.path)
        where = f"{dotted(problem.path, self.data)}: " if problem.path else ""
        through = "" if name == self.name else f" (extended by {self.name})"
        return f"{name}:{line}: {where}{one_line(problem.message)}{through}"


class Document(Placed):
    """``data`` is the parsed text; ``name`` is the file in errors.

    Raises ArchitectureError for invalid YAML, an empty text, a duplicate key, and aliases that expand to too much.
    """

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        loader = None
        try:
            check_size(text, name)
            loader = LOADER(text)
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
        # after construct_document, which moves merged keys
        self._known: dict[KeyPath, int] = dict(_lines(root, (), ()))

    def place(self, path: KeyPath) -> tuple[str, int]:
        return self.name, self._known.get(self.known_part(path), 1)


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
            # the date 2026-13-01, or a tag such as !!bool before another value
            kind = node.tag.rpartition(":")[2]
            place = f"{name}:{node.start_mark.line + 1}"
            raise ArchitectureError(f"{place}: not YAML: '{one_line(node.value)[:60]}' is no {kind}") from error
    return loader.construct_document(root)


def _scalars(root: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """Every scalar once, keys of mappings included; merge keys have no value of their own."""
    waiting, visited = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
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
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in lines:
                    yield Problem((*path, key.value), f"is in line {lines[key.value]} already"), line
                lines[key.value] = line
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
