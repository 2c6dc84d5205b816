"""Every release has the packages, options and units that templates, scripts and plans use on it (RELEASES.md)."""

from __future__ import annotations

import re
from functools import cache

import pytest

from rackproof import architectures
from rackproof.configure import packages
from rackproof.configure.containers import daemon
from rackproof.configure.preflight.node import SUPPORTED
from rackproof.configure.slurm.cluster import CGROUP_V2_SINCE, V1_ONLY
from tests.unit.plan.golden import PLANS
from tests.unit.release_words import ROOT, Word, commands, declared, file_words, planned, units

NONE = "–"
RACKS = {"debian12": "Debian 12", "debian13": "Debian 13", "ubuntu2204": "Ubuntu 22.04", "ubuntu2404": "Ubuntu 24.04"}
"""Releases by a part of a written rack's name."""


@cache
def section(title: str) -> tuple[tuple[str, ...], ...]:
    """Rows of the table below a heading, its head first."""
    text = (ROOT / "RELEASES.md").read_text("utf-8")
    body = text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in body.splitlines() if line.startswith("| ")]
    return tuple(tuple(cell.strip() for cell in row) for row in rows)


def number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


@cache
def versions() -> dict[str, dict[str, tuple[int, ...]]]:
    """Version by release and program; a release that does not use a program lacks it."""
    head, *rows = section("Versions")
    return {
        release: {row[0]: number(row[index]) for row in rows if row[index] != NONE}
        for index, release in enumerate(head)
        if index
    }


@cache
def since() -> dict[Word, tuple[int, ...]]:
    """The version from which on a word is known, or one that knows it."""
    return {
        (program, word): number(version)
        for program, version, _, words in section("Words")[1:]
        for word in re.findall(r"`([^`]+)`", words)
    }


@cache
def newer() -> dict[str, set[str]]:
    """Releases that get a word, for words that are newer than another release."""
    return {
        word.strip("`"): set(only.split(", ")) for word, only, _ in section("What is newer than the oldest release")[1:]
    }


def release_of(rack: str) -> str:
    return next((release for part, release in RACKS.items() if part in rack), "RHEL 9")


@cache
def plans() -> dict[str, dict[Word, str]]:
    """Words of the plans of written racks, by rack."""
    return {path.parents[1].name: planned(path.read_text()) for path in (ROOT / PLANS).glob("*/golden/gpu-01.txt")}


def missing(words: dict[Word, str]) -> list[str]:
    return [f"{place}: {program}: {word}" for (program, word), place in words.items() if (program, word) not in since()]


def test_every_word_is_in_the_table() -> None:
    assert missing(declared()) == []
    assert [line for words in plans().values() for line in missing(words)] == []


def test_no_word_of_the_table_is_unused() -> None:
    used = {word for words in (declared(), *plans().values()) for word in words}
    assert set(since()) - used == set()


def too_new(release: str, words: dict[Word, str]) -> list[str]:
    known = versions()[release]
    return [
        f"{release}: {place}: {program}: {word}"
        for (program, word), place in words.items()
        if release not in newer().get(word, ()) and (program not in known or known[program] < since()[program, word])
    ]


@pytest.mark.parametrize("rack", sorted(plans()))
def test_no_node_gets_what_its_release_does_not_know(rack: str) -> None:
    assert too_new(release_of(rack), plans()[rack]) == []


def test_what_every_release_may_get_is_known_to_the_oldest() -> None:
    """Templates, scripts and modules; what goes to some releases only is named, and the plans show that it does."""
    words = {word: place for word, place in declared().items() if word[1] not in newer()}
    wrong = [
        line
        for release, known in versions().items()
        for line in too_new(release, {word: place for word, place in words.items() if word[0] in known})
    ]
    assert wrong == []


def test_exceptions_are_newer_than_a_release() -> None:
    oldest = {
        program: min(known[program] for known in versions().values() if program in known) for program, _ in since()
    }
    by_word = {word: (program, version) for (program, word), version in since().items()}
    assert {word for word in newer() if by_word[word][1] > oldest[by_word[word][0]]} == set(newer())


def test_each_supported_release_has_a_column_and_a_written_rack() -> None:
    names = {"debian": "Debian", "ubuntu": "Ubuntu", "rhel": "RHEL"}
    supported = {f"{names[name]} {version}" for name in names for version in SUPPORTED[name]}
    assert set(versions()) == supported == {release_of(rack) for rack in plans()}


def test_slurms_that_know_one_kind_of_control_groups_are_those_of_the_table() -> None:
    names = {("ubuntu", "22.04"): "Ubuntu 22.04"}
    older = {release for release, known in versions().items() if known["slurm"] < number(CGROUP_V2_SINCE)}
    assert {names[release] for release in V1_ONLY} == older


def test_every_package_exists_on_every_release() -> None:
    head, *rows = section("Packages")
    table = {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}
    models = [architectures.load(entry.id).model for entry in architectures.available()]
    names = {name for model in models for name in (*model.system.packages, *model.tools.packages)}
    names |= {name for runtime in daemon.PACKAGES.values() for name in runtime}
    names |= {name for group in (packages.BASE, packages.SOFT_ROCE, packages.DOWNLOADS) for name in group}
    names |= {*packages.NFS_CLIENT, *packages.NFS_SERVER, *packages.CEPH_CLIENT, *packages.FILESYSTEMS.values()}
    assert names - set(table) == set()
    assert [f"{name}: {release}" for name in names for release, version in table[name].items() if version == NONE] == []
    assert {name: table[name]["RHEL 9"] for name in names} == {
        name: ", ".join(packages.names_for([name], "rhel")) for name in names
    }


LINK = "systemd.network Link.RequiredForOnline"


@pytest.mark.parametrize(
    ("path", "text", "word"),
    [
        ("/etc/chrony/chrony.conf", "leapseclist /usr/share/x\n", ("chrony", "chrony.conf leapseclist")),
        ("/etc/systemd/network/10-x.network", "[Link]\nRequiredForOnline=no\n", ("systemd", LINK)),
        ("/etc/slurm/slurm.conf", "NodeName=a Sockets=2\n", ("slurm", "slurm.conf Sockets")),
        ("/etc/nfs.conf.d/x.conf", "[nfsd]\nthreads=8\n", ("nfs-utils", "nfs.conf nfsd.threads")),
    ],
)
def test_directives_are_read_from_files(path: str, text: str, word: Word) -> None:
    assert word in set(file_words(path, text))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('udevadm info -q property --property=ID_PATH --value -- "$i"', {"-q", "--property", "--value", "info"}),
        ("timeout 30 dcb app replace dev rail0 dscp-prio 26:3", {"app"}),
        ("x=$(systemctl show --property=Id -- a.service | head -n 1)", {"--property", "show"}),
        ("nft --handle list ruleset; tuned-adm --async profile x", {"--handle", "--async", "profile"}),
        ("# udevadm wait /dev/x", set()),
    ],
)
def test_options_and_verbs_are_read_from_commands(line: str, words: set[str]) -> None:
    assert {word.split(" ", 1)[1] for _, word in commands(line)} == words


def test_units_are_read_from_text() -> None:
    text = "systemctl enable -- systemd-networkd-wait-online@rail0.service rackproof-x.service chrony.service"
    assert list(units(text)) == ["systemd-networkd-wait-online@.service", "chrony.service"]


def test_no_mount_unit_has_an_option_that_only_fstab_takes() -> None:
    """systemd.mount(5): ``x-systemd.`` options are ignored "when part of the Options= setting in a unit file"."""
    texts = {path: path.read_text() for path in (ROOT / PLANS).glob("*/golden/*.txt")}
    wrong = [
        f"{path}: {line}" for path, text in texts.items() for line in re.findall(r"Options=.*\bx-systemd\..*", text)
    ]
    assert wrong == []


def test_the_next_word_that_is_too_new_is_noticed() -> None:
    """The words that once were: each is newer than one supported release, and none of them passes."""
    old = "Ubuntu 22.04"
    assert versions()[old]["systemd"] < (250,)  # udevadm info --property
    words: dict[Word, str] = {
        ("systemd", "udevadm --property"): "links",
        ("chrony", "chrony.conf leapseclist"): "chrony.conf",
    }
    assert missing(words) == ["links: systemd: udevadm --property"]
    assert too_new(old, {("chrony", "chrony.conf leapseclist"): "chrony.conf"}) == [
        f"{old}: chrony.conf: chrony: chrony.conf leapseclist"
    ]
