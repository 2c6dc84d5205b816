"""Nothing is declared in two ways by one run."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from rackproof.configure import operations
from rackproof.configure.declarations import Declared
from rackproof.configure.files import RemoteFile
from rackproof.configure.shared_files import rendered
from rackproof.errors import DeclarationError
from tests.unit.configure.stub import StubHost, at

ROOT = Path(__file__).parents[3]

PAIRS = {
    "/etc/systemd/system/raid.mount": (RemoteFile("/etc/systemd/system/raid.mount", f"What=/dev/{n}\n") for n in "ab"),
    "sysctl vm.swappiness": (
        rendered("/etc/sysctl.d/60-rackproof.conf", sysctl={"vm.swappiness": "1"}),
        rendered("/etc/sysctl.d/61-rackproof-fabric.conf", sysctl={"vm.swappiness": "10"}),
    ),
}


@pytest.mark.parametrize("thing", PAIRS)
def test_two_declarations_of_one_thing_are_refused_with_both_places(thing: str) -> None:
    first, second = PAIRS[thing]
    declared = Declared()
    declared.add([first], "Node | Files")
    declared.add([first], "Files again")
    with pytest.raises(DeclarationError, match=re.escape(thing)) as caught:
        declared.add([second], "Storage | Files")
    assert "by 'Node | Files' and by 'Storage | Files'; nothing was changed" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_same_value_of_a_key_in_two_files_is_declared_in_one_way() -> None:
    declared = Declared()
    for path in ("/etc/sysctl.d/60-rackproof.conf", "/etc/sysctl.d/61-rackproof-fabric.conf"):
        declared.add([rendered(path, sysctl={"vm.swappiness": "1"})], path)


def test_options_of_a_module_have_one_file() -> None:
    """Declarations compare paths, not options: two files with options of one module would contradict unnoticed."""
    parts = [ROOT / part for part in ("rackproof/configure", "deploys", "templates")]
    sources = [path.read_text() for part in parts for end in ("py", "sh", "j2") for path in part.rglob(f"*.{end}")]
    pattern = re.compile(r"(?:^|[\"'`]|\\n|echo )options (\S+) [^ \n]*[={]", re.MULTILINE)
    lines = [set(pattern.findall(text)) for text in sources]
    modules = Counter(module for of_source in lines for module in of_source)
    assert modules.keys() == {"nouveau", "nvidia", "nvme_core", "ib_ipoib", "lnet", "ko2iblnd", "ksocklnd", "sunrpc"}
    assert [module for module, count in modules.items() if count > 1] == []
    files = Counter(name for text in sources for name in set(re.findall(r"/etc/modprobe\.d/([\w-]+\.conf)", text)))
    assert [name for name, count in files.items() if count > 1] == []
    assert [text for text, own in zip(sources, lines, strict=True) if own and text.count("/etc/modprobe.d/") > 1] == []


def test_blocks_of_a_shared_file_are_not_the_file() -> None:
    declared = Declared()
    declared.add([RemoteFile("/etc/hosts", "a\n", block=True), RemoteFile("/etc/hosts", "b\n", block=True)], "Files")


def test_a_plan_ends_before_a_node_is_asked() -> None:
    stub = StubHost({}, executing=False)
    entries = [RemoteFile("/etc/motd", "one\n"), RemoteFile("/etc/motd", "two\n")]
    with at(stub), pytest.raises(DeclarationError, match="/etc/motd is declared twice"):
        list(operations.write_files(entries))
    assert stub.asked == []
