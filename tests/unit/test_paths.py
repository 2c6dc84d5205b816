"""The paths of SECURITY.md: complete, of root where it says so, and safe where others may make names."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rackproof.configure.render import Templates
from tests.unit.own_root import STRANGER, in_own_root

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]
LISTED = {path: row[1] for row in ROWS for path in re.findall(r"`([^`]+)`", row[0])}
"""Who can make a name, by path."""
SOURCES = [
    path
    for folder in ("rackproof", "deploys", "templates")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".sh", ".j2") and "lab" not in path.relative_to(ROOT).parts
]
NAMED = re.compile(
    r"/(?:run|var/lib(?:/ceph)?|var/cache|var/log|var/mmfs/ssl|opt|usr/local/(?:s?bin|share|lib)|tmp|var/tmp|dev/shm)"
    r"/rackproof[A-Za-z0-9._-]*"
)


def test_every_path_of_the_kit_is_in_the_table() -> None:
    named = {match for path in SOURCES for match in NAMED.findall(path.read_text())}
    assert len(named) > 10
    prefixes = tuple(re.sub(r"[*/A-Z]*$", "", path) for path in LISTED)
    assert {path for path in named if not path.startswith(prefixes)} == set()


def test_every_temporary_name_is_made_by_mktemp_and_is_in_the_table() -> None:
    made = {
        (path.name, line.strip())
        for path in SOURCES
        for line in path.read_text().splitlines()
        if re.search(r"\bmktemp\b|TemporaryDirectory\(dir=", line) and not line.lstrip().startswith(("#", '"awk"'))
    }
    assert {name for name, _ in made} == {
        "batch.sh", "batch.py", "firmware.py", "unpack.sh", "steps.py", "fio_clients.py",
        "rackproof-ceph-bootstrap.j2", "tree_node.py", "dlio_node.py",
    }  # fmt: skip
    assert [path for path in SOURCES if re.search(r">\s*/(tmp|var/tmp)/", path.read_text())] == []


@pytest.mark.parametrize("path", [path for path, who in LISTED.items() if who == "root" and path.startswith("/")])
def test_no_other_user_can_make_a_path_of_root(path: str) -> None:
    for folder in Path(path.rstrip("…*")).parents:
        if folder.exists():
            facts = folder.stat()
            assert (facts.st_uid, facts.st_mode & 0o022) == (0, 0), folder


@pytest.mark.parametrize(
    "planted",
    [
        'echo theirs | stranger tee "$part"; stranger chmod 666 "$part"',
        'stranger ln -s /mnt/secret "$part"',
        'stranger mkfifo "$part"',
        'stranger ln -s /mnt/secret "$path"',
        'echo theirs | stranger tee "$path"',
    ],
)
def test_an_output_in_a_folder_of_all_is_the_kits_own_file(tmp_path: Path, planted: str) -> None:
    writer, plant = tmp_path / "writer.py", tmp_path / "plant.sh"
    writer.write_text(
        "import os, subprocess, sys, threading\n"
        "from pathlib import Path\n"
        "from rackproof.atomic_write import replace_file\n"
        "path = Path('/mnt/open/x.xml')\n"
        "part = path.with_name(f'.{path.name}.{os.getpid()}-{threading.get_native_id()}.part')\n"
        "names = {**os.environ, 'path': str(path), 'part': str(part)}\n"
        "subprocess.run(['sh', sys.argv[1]], env=names, stdout=subprocess.DEVNULL, check=True)\n"
        "replace_file(path, 'ours')\n"
    )
    user = f"setpriv --reuid={STRANGER} --regid={STRANGER} --clear-groups --"
    plant.write_text(f'stranger() {{ {user} "$@"; }}\n{planted}\n')
    write = f"PYTHONPATH={ROOT} {sys.executable} {writer} {plant}"
    look = "stat -c '%u %F' /mnt/open/x.xml; cat /mnt/open/x.xml /mnt/secret"
    done = in_own_root(f"echo secret >/mnt/secret; mkdir -m 1777 /mnt/open\n{write} && {{ {look}; }}", tmp_path)
    assert done.stdout == "0 regular file\nourssecret\n", done.stderr


@pytest.mark.parametrize(
    ("planted", "status"),
    [
        ("", 0),
        (f"ln -s /mnt/home /mnt/open/rackproof-container-{STRANGER}", 73),
        (f"mkdir -m 777 /mnt/open/rackproof-container-{STRANGER}", 73),
    ],
)
def test_a_container_uses_no_runtime_folder_that_another_user_has_planted(
    tmp_path: Path, planted: str, status: int
) -> None:
    values = {"host_root": "/r", "shared": [], "mountpoints": [], "selinux": False, "runtime": "podman"}
    program = Templates(ROOT / "templates").text("/usr/local/bin/rackproof-container", **values)
    script = f"""
mkdir -m 1777 /mnt/open; mkdir -m 755 /mnt/bin /mnt/home; chown {STRANGER} /mnt/home
cat >/mnt/bin/podman <<'END'
#!/bin/sh
echo "$XDG_RUNTIME_DIR"
END
cat >/mnt/bin/tool <<'END'
{program}
END
chmod 755 /mnt/bin/*
other() {{ setpriv --reuid={STRANGER + 1} --regid={STRANGER + 1} --clear-groups -- "$@"; }}
{f"other {planted}" if planted else ":"}
stranger env -u XDG_RUNTIME_DIR TMPDIR=/mnt/open PATH="/mnt/bin:$PATH" tool --host-root -- true
echo $?
"""
    done = in_own_root(script, tmp_path)
    assert done.stdout.splitlines()[-1] == str(status), done.stderr
