"""Every string that an architecture, an inventory or a version set may give: what it can hold, and what not."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from rackproof.configure.known_inputs import MODELS
from rackproof.configure.settings import NodeSettings, read_inputs
from rackproof.core.architecture import Architecture
from rackproof.core.architecture.complaints import model_problems
from rackproof.core.architecture.document import Document
from rackproof.core.rack import Node
from rackproof.core.versions.models import VersionSet
from rackproof.errors import InventoryError

pytestmark = pytest.mark.few(5)

ROOT = Path(__file__).parents[3]
ROOTS: dict[str, type[BaseModel]] = {
    "architecture": Architecture,
    "node": NodeSettings,
    "versions": VersionSet,
    **{f"inventory.{key}": model for key, model in MODELS.items()},
}
CONTROL = ("a\nb", "a\n", "a\rb", "a\x00b", "a\tb", "\x1b]0;title\x07", "a\x9bb", "a\u2028b", "a\u202eb")
HOSTILE = (
    "$(touch /tmp/pwned)",
    "`id`",
    "; id",
    "a;id\x20",
    "a && id",
    "a'b",
    'a"b',
    "a\\",
    "../x",
    "a b > /etc/x",
)
LINES = {
    # leaves that hold any printable line, and where they go
    "architecture.extends": "a file that the controller opens",
    "architecture.roles{}.expect.nics[].model": "compared with an answer",
    "architecture.roles{}.expect.cpu.model": "compared with an answer",
    "architecture.roles{}.expect.drives[].model": "compared with an answer",
    "architecture.roles{}.expect.drives[].firmware[]": "compared with an answer",
    "architecture.gpu.model": "compared with an answer; text of simulated GPUs",
    "architecture.gpu.gds[]": "compared with an answer",
    "architecture.system.users[].ssh_keys[]": "a line of authorized_keys, written by a quoted script",
    "architecture.system.users[].sudo": "a line of sudoers, checked by visudo",
    "inventory.node.users[].ssh_keys[]": "a line of authorized_keys, written by a quoted script",
    "inventory.node.users[].sudo": "a line of sudoers, checked by visudo",
    "inventory.nic.adapters{}": "printed",
    "versions.platforms{}.components.nic_firmware[].model": "compared with an answer",
}
BACKSLASH = {
    "architecture.roles{}.expect.services[]",
    "architecture.system.limits.services[]",
    "inventory.node.limited_services[]",
}
"""Names of units, as systemd escapes them."""
AFTER_A_NAME = (
    "_settings{}",
    "sysctl{}",
    "parameters{}",
    "nccl{}",
    "_options{}",
    "dlio{}.options{}",
    "_conf{}",
    "nccl_hca[]",
    "_options{}{}",
    "extra{}",
    "build_options[]",
)
"""Values that follow a name, and options: they may begin with a dash."""
LINE_KEYS = {"unit", "where", "conditions"}
"""Keys of criteria, compared with other text of the kit."""
FREE = {"inventory.gpu.cufile{key}", "inventory.gpu.cufile{}"}
"""Written as JSON, which escapes whatever it holds."""
ON_THE_CONTROLLER = ".auth.file", ".secret.file"
"""Files that the controller opens."""


def leaves(
    kind: Any, path: str, metadata: tuple[Any, ...] = (), above: tuple[Any, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Path and annotation of every string below a type. An optional string's own type is what counts."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated and get_origin(arguments[0]) not in (tuple, dict):
        yield from leaves(arguments[0], path, (*arguments[1:], *metadata), above)
    elif origin is Annotated:
        yield from leaves(arguments[0], path, (), above)
    elif origin in (Union, UnionType):
        for argument in arguments:
            yield from leaves(argument, path, metadata, above)
    elif inspect.isclass(kind) and issubclass(kind, BaseModel):
        if kind not in above:
            for name, field in kind.model_fields.items():
                whole = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation  # type: ignore[valid-type]
                yield from leaves(whole, f"{path}.{field.alias or name}", (), (*above, kind))
    elif origin in (tuple, list, frozenset):
        yield from leaves(arguments[0], f"{path}[]", (), above)
    elif origin is dict:
        yield from leaves(arguments[0], f"{path}{{key}}", (), above)
        yield from leaves(arguments[1], f"{path}{{}}", (), above)
    elif kind is str or kind is Any:
        yield path, Annotated[kind, *metadata] if metadata else kind


LEAVES = [leaf for name, model in ROOTS.items() for leaf in leaves(model, name)]


def accepted(adapter: TypeAdapter[Any], texts: tuple[str, ...]) -> list[str]:
    values = []
    for text in texts:
        try:
            values.append(adapter.validate_python(text))
        except ValidationError:
            continue
    return values


@pytest.mark.parametrize("root", ROOTS)
def test_a_string_holds_no_control_character_and_nothing_a_shell_reads(root: str) -> None:
    wrong: dict[str, list[str]] = {}
    for path, kind in LEAVES:
        if path in FREE or not path.startswith(f"{root}."):
            continue
        adapter = TypeAdapter(kind)
        wrong[path] = [value for value in accepted(adapter, CONTROL) if not value.isprintable()]
        prose = bool(accepted(adapter, ("of\nseveral lines",)))
        line = path in LINES or LINE_KEYS & set(re.split(r"[.\[\]{}]+", path)) or path.endswith(ON_THE_CONTROLLER)
        if not prose and not line:
            wrong[path] += set(accepted(adapter, HOSTILE)) - ({"a\\"} if path in BACKSLASH else set())
            wrong[path] += [] if path.endswith(AFTER_A_NAME) else accepted(adapter, ("-x", "--help"))
    assert {path: values for path, values in wrong.items() if values} == {}


def test_the_list_of_free_lines_is_current() -> None:
    assert set(LINES) | FREE <= {path for path, _ in LEAVES}
    assert len(LEAVES) > 600


FILES = sorted(
    file
    for file in [*(ROOT / "architectures").glob("*.yaml"), *(ROOT / "tests/data/plans").glob("*/architecture.yaml")]
    if "\nextends:" not in file.read_text()
)


@pytest.mark.few(4)
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_an_architecture_with_such_a_string_is_refused_with_key_and_line(file: Path) -> None:
    document = Document(file.read_text(), file.name)
    data = json.loads(json.dumps(document.data))  # without the aliases of the file
    tried = set()
    for path in _strings(document.data, ()):
        kind = re.sub(r"\[\d+\]|\.(?=\d)\d+", "[]", ".".join(map(str, path)))
        if kind in tried or path[0] in ("apiVersion", "extends") or path[-1] == "claim":
            continue
        tried.add(kind)
        for text in ("a\x00b", "$(touch /tmp/pwned)"):
            holder = data
            for key in path[:-1]:
                holder = holder[key]
            before, holder[path[-1]] = holder[path[-1]], text
            try:
                Architecture.model_validate(data)
            except ValidationError as error:
                if "of" in path:  # a quantity or a link: both say why it is neither
                    continue
                name, line, rest = str(document.refused(model_problems(error, document))).split(":", 2)
                place = path[:-1] if path[-1] == "unit" and text != "a\x00b" else path  # its figure is refused
                assert (name, int(line)) == document.place(place), rest
                assert str(place[-1]) in rest or isinstance(place[-1], int)
            else:
                assert text != "a\x00b", path
            finally:
                holder[path[-1]] = before


def _strings(data: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        if isinstance(value, str):
            yield (*path, key)
        yield from _strings(value, (*path, key))


@pytest.mark.parametrize("key", MODELS)
def test_an_inventory_with_such_a_string_is_refused_with_its_key(key: str) -> None:
    for path, _ in LEAVES:
        if not path.startswith(f"inventory.{key}.") or path in {*LINES, *FREE}:
            continue
        for text in ("a\x00b", "$(touch /tmp/pwned)"):
            if text.isprintable() and ("accept" in path or path.endswith(ON_THE_CONTROLLER)):
                continue
            value: Any = text
            for part in reversed(re.findall(r"\w+|\[\]|\{key\}|\{\}", path.split(".", 2)[2])):
                if part == "[]":
                    value = [value]
                else:
                    value = {text: {}} if part == "{key}" else {"name" if part == "{}" else part: value}
            with pytest.raises(InventoryError, match=rf"^n: {key}\."):
                read_inputs(Node("n", (), {key: value}), MODELS[key])
