"""Imports point inwards only, and the core asks no machine, no clock and no disk anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "rackproof"

INNER = {"errors", "core", "parse"}
REACH = INNER | {"atomic_write", "inventory", "inventory_reader", "architectures", "remote", "version_sets"}
LAYERS: dict[str, set[str]] = {
    # what a part of the package may import from the others
    "errors": set(),
    "atomic_write": set(),
    "core": {"errors"},
    "parse": {"core", "errors"},
    "architectures": {"core", "errors"},
    "version_sets": {"core", "errors"},
    "inventory": {"core", "errors", "inventory_reader"},
    "inventory_reader": {"core", "errors"},
    "inventories": INNER,
    "remote": INNER | {"atomic_write"},
    "lab": REACH,
    "configure": REACH,
    "validation": REACH | {"run"},
    "bench": REACH | {"run"},
    "run": REACH | {"bench", "validation"},
    "selftest": REACH | {"validation"},
    "report": INNER,
    "cli": REACH | {"lab", "configure", "validation", "bench", "run", "report", "selftest"},
    "__main__": {"cli"},
}

PURE: dict[str, set[str]] = {
    # what the pure parts may import from elsewhere: no machine, no clock, no disk, no program
    "core": {"ClusterShell", "networkx", "pint", "pydantic", "pydantic_core", "yaml"},
    "parse": {"pydantic"},
}
PURE_STDLIB = {
    *(
        "__future__",
        "collections",
        "contextlib",
        "dataclasses",
        "difflib",
        "enum",
        "functools",
        "gc",
        "hashlib",
        "ipaddress",
    ),
    *("itertools", "json", "math", "re", "shlex", "statistics", "types", "typing", "xml"),
}
SIDE_EFFECTS = {"open", "print", "input", "exec", "eval", "__import__"}


def parts() -> list[str]:
    """Modules and packages directly below the package."""
    return sorted(
        path.stem
        for path in PACKAGE.iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or any(path.glob("*.py"))
    )


def files(part: str) -> list[Path]:
    single = PACKAGE / f"{part}.py"
    return [single] if single.is_file() else sorted((PACKAGE / part).rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Dotted names of all imported modules, wherever in the file they stand."""
    module = ["rackproof", *path.relative_to(PACKAGE).with_suffix("").parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module[: len(module) - node.level] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{name}.{alias.name}" for alias in node.names)


def own(path: Path) -> set[str]:
    """Parts of the package that a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("rackproof.")} & set(parts())


@pytest.mark.parametrize("part", parts())
def test_a_part_imports_inner_parts_only(part: str) -> None:
    assert part in LAYERS, f"say in LAYERS what rackproof.{part} may import"
    outwards = {
        f"{path.relative_to(PACKAGE)} imports {other}"
        for path in files(part)
        for other in own(path) - LAYERS[part] - {part}
    }
    assert outwards == set()


def test_only_the_commands_see_commands_and_reports() -> None:
    assert {part for part, others in LAYERS.items() if others & {"cli", "report"}} == {"cli", "__main__"}


@pytest.mark.parametrize("part", PURE)
def test_the_core_and_the_parsers_are_pure(part: str) -> None:
    found = set()
    for path in files(part):
        name = path.relative_to(PACKAGE)
        outside = {imported.split(".")[0] for imported in imports(path)} - {"rackproof"}
        found |= {f"{name} imports {module}" for module in outside - PURE_STDLIB - PURE[part]}
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        found |= {f"{name} calls {called}" for called in names & SIDE_EFFECTS}
    assert found == set()


def test_the_reader_of_imports_sees_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.test_layers.PACKAGE", tmp_path)
    (tmp_path / "core").mkdir()
    module = tmp_path / "core" / "x.py"
    module.write_text(
        "import os.path\nfrom rackproof import remote\nfrom . import y\nfrom .. import cli\nfrom ..report import page\n"
        "def f():\n    from subprocess import run\n"
    )
    assert set(imports(module)) == {
        "os.path",
        "rackproof.remote",
        "rackproof.core.y",
        "rackproof.cli",
        "rackproof.report.page",
        "subprocess.run",
    }
