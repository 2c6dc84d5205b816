"""Imports point one way, and the core touches no machine, no clock and no disk."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.unit.sources import nodes_of

PACKAGE = Path(__file__).parents[2] / "rackproof"

LAYERS: dict[str, set[str]] = {
    # From the ground up: what each part of the package imports, all of it from above its own line.
    "errors": set(),
    "atomic_write": {"errors"},
    "read_file": {"errors"},
    "shell": set(),
    "core": {"errors"},
    "parse": {"core", "errors"},
    "kit": {"core", "errors"},
    "architectures": {"core", "errors", "kit", "read_file"},
    "version_sets": {"core", "errors", "read_file"},
    "inventory_reader": {"core", "errors"},
    "inventory": {"core", "errors", "kit", "read_file"},
    "inventories": {"core", "errors", "parse", "read_file"},
    "remote": {"atomic_write", "core", "errors", "kit", "parse", "read_file", "shell"},
    "report": {"core", "errors"},
    "lab": {"atomic_write", "core", "errors"},
    "evidence": {"architectures", "atomic_write", "core", "errors", "kit", "read_file", "remote"},
    "configure": {*("architectures", "core", "errors", "kit", "parse", "read_file", "remote", "shell", "version_sets")},
    "bench": {"configure", "core", "errors", "evidence", "parse", "remote", "shell"},
    "validation": {
        *("architectures", "atomic_write", "core", "errors", "evidence", "inventory", "kit", "parse", "remote"),
        *("read_file", "version_sets"),
    },
    "run": {
        *("architectures", "bench", "configure", "core", "errors", "evidence", "kit", "parse", "remote"),
        "validation",
    },
    "selftest": {"architectures", "bench", "core", "errors", "parse", "remote", "validation"},
    "cli": {
        *("architectures", "atomic_write", "bench", "configure", "core", "errors", "evidence", "inventory", "kit"),
        *("lab", "parse", "read_file", "remote", "report", "run", "selftest", "validation", "version_sets"),
    },
    "__main__": {"cli", "remote"},
}

PURE: dict[str, set[str]] = {
    # what the pure parts may import from elsewhere: no machine, no clock, no disk, no program
    "core": {"ClusterShell", "networkx", "pydantic", "pydantic_core", "yaml"},
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
        "fnmatch",
        "fractions",
        "functools",
        "gc",
        "hashlib",
        "ipaddress",
    ),
    *("itertools", "json", "math", "re", "shlex", "statistics", "types", "typing", "xml"),
}
SIDE_EFFECTS = {"open", "print", "input", "exec", "eval", "__import__"}


def parts() -> list[str]:
    """Names of the modules and packages directly below the package."""
    return sorted(
        path.stem
        for path in PACKAGE.iterdir()
        if (path.suffix == ".py" and path.stem != "__init__") or any(path.glob("*.py"))
    )


def files(part: str) -> list[Path]:
    single = PACKAGE / f"{part}.py"
    return [single] if single.is_file() else sorted((PACKAGE / part).rglob("*.py"))


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names of all modules that a file imports, at its top or within a function."""
    return frozenset(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    module = ["rackproof", *path.relative_to(PACKAGE).with_suffix("").parts]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module[: len(module) - node.level] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{name}.{alias.name}" for alias in node.names)


def own(path: Path) -> set[str]:
    """Parts of the package that a file imports."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("rackproof.")} & LAYERS.keys()


def module_name(path: Path) -> str:
    parts = ["rackproof", *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def module_graph() -> dict[str, set[str]]:
    """Modules of the package and the modules that each imports. Names imported from a package count as the package."""
    paths = {module_name(path): path for part in parts() for path in files(part)}
    graph = {}
    for name, path in paths.items():
        imported = {wanted if wanted in paths else wanted.rpartition(".")[0] for wanted in imports(path)}
        graph[name] = (imported & paths.keys()) - {name}
    return graph


def subpackage_of(module: str) -> str | None:
    """``rackproof.configure.nic`` of ``rackproof.configure.nic.plan``; None for modules beside subpackages."""
    name = ".".join(module.split(".")[:3])
    return name if (PACKAGE.parent / name.replace(".", "/")).is_dir() and name.count(".") == 2 else None


def subpackage_graph() -> dict[str, set[str]]:
    """Subpackages of each part and those of the same part that each imports."""
    graph: dict[str, set[str]] = {}
    for module, imported in module_graph().items():
        own_package = subpackage_of(module)
        others = {subpackage_of(other) for other in imported} - {own_package}
        if own_package:
            graph.setdefault(own_package, set()).update(other for other in others if other)
    return graph


@pytest.mark.parametrize("part", parts())
def test_a_part_imports_what_the_layers_allow(part: str) -> None:
    assert part in LAYERS, f"add rackproof.{part} to LAYERS"
    imported = {other: path.relative_to(PACKAGE) for path in files(part) for other in own(path) - {part}}
    forbidden = {f"{path} imports {other}" for other, path in imported.items() if other not in LAYERS[part]}
    unused = LAYERS[part] - imported.keys()
    assert (forbidden, unused) == (set(), set()), "LAYERS names exactly what a part imports"


def test_the_layers_are_an_order() -> None:
    order = list(LAYERS)
    upward = {
        f"{part} imports {other}"
        for part, others in LAYERS.items()
        for other in others
        if order.index(other) >= order.index(part)
    }
    assert upward == set()
    assert set(order) == set(parts())


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter(module_graph()).prepare()  # raises CycleError, which names the circle


def test_no_subpackages_import_each_other_in_a_circle() -> None:
    TopologicalSorter(subpackage_graph()).prepare()


def test_only_the_commands_see_commands_and_reports() -> None:
    assert {part for part, others in LAYERS.items() if others & {"cli", "report"}} == {"cli", "__main__"}


@pytest.mark.parametrize("part", PURE)
def test_the_core_and_the_parsers_are_pure(part: str) -> None:
    impure = set()
    for path in files(part):
        name = path.relative_to(PACKAGE)
        outside = {imported.split(".")[0] for imported in imports(path)} - {"rackproof"}
        impure |= {f"{name} imports {module}" for module in outside - PURE_STDLIB - PURE[part]}
        calls = [node for node in nodes_of(path) if isinstance(node, ast.Call)]
        names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        impure |= {f"{name} calls {called}" for called in names & SIDE_EFFECTS}
    assert impure == set()


def test_the_reader_of_imports_sees_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.test_layers.PACKAGE", tmp_path)
    (tmp_path / "core").mkdir()
    module = tmp_path / "core" / "x.py"
    module.write_text(
        "import os.path\nfrom rackproof import remote\nfrom . import y\nfrom .. import cli\nfrom ..report import page\n"
        "def f():\n    from subprocess import run\n"
    )
    assert imports(module) == {
        "os.path",
        "rackproof.remote",
        "rackproof.core.y",
        "rackproof.cli",
        "rackproof.report.page",
        "subprocess.run",
    }


DEPLOYS = PACKAGE.parent / "deploys"


def test_the_package_imports_no_deploy() -> None:
    """Neither by a statement nor by the name of a module in a string."""
    for path in PACKAGE.rglob("*.py"):
        assert not any(name.split(".")[0] == "deploys" for name in imports(path)), path
        strings = [node.value for node in nodes_of(path) if isinstance(node, ast.Constant)]
        assert not [text for text in strings if isinstance(text, str) and text.startswith("deploys.")], path


@pytest.mark.parametrize("path", sorted(DEPLOYS.glob("*.py")), ids=lambda path: path.stem)
def test_a_deploy_imports_pyinfra_the_package_and_deploys_that_it_brings(path: Path) -> None:
    nodes = nodes_of(path)
    modules = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    assert not [node for node in nodes if isinstance(node, ast.Import)]
    assert {module.split(".")[0] for module in modules} <= {
        "__future__",
        "collections",
        "deploys",
        "pyinfra",
        "rackproof",
    }
    brought = {
        alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("deploys.")
        for alias in node.names
    }
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert brought <= called


@pytest.mark.parametrize("path", sorted(DEPLOYS.glob("[a-z]*.py")), ids=lambda path: path.stem)
def test_a_deploy_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 120, "planning belongs in rackproof.configure"
