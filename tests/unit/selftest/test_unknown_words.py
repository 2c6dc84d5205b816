"""Every state word of a healthy answer, replaced by an unknown one: some check that reads the answer must notice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from rackproof.core.evidence import CheckOutcome
from rackproof.remote.command import CommandResult
from rackproof.selftest.trial import Seen, Subject
from tests.unit.validation.checking import subjects

UNKNOWN = b"Grumbling"
WORDS = re.compile(
    rb"(?<![\w.+/-])(?:up|down|UP|DOWN|[Oo]nline|ok|OK|HEALTH_OK|[Ee]nabled|[Dd]isabled|[Aa]ctive|ACTIVE|inactive|loaded"
    rb"|running|Live|Pass|PASS|[Nn]one|[Yy]es|[Nn]o|on|off|[Ff]ull|[Nn]ormal|Success|Completed|synced|in_sync|clean"
    rb"|Supported|FULL|LISTEN|ESTAB|READY|Ready|ONLINE|NORMAL|VALID|Match|stable|present|UpToDate|primary|static|LINK_UP|LinkUp|PORT_ACTIVE|[Cc]onnected|Granted|idle|IDLE|installed|true|false|[Gg]ood|[Hh]ealthy|Default"
    rb"|[Oo]ptimal|mounted|Not affected|Mitigation|Not [Aa]ctive|active\+clean|up:active)(?![\w/])"
)
MOST = 150
"""Different words tried in one answer."""

NO_STATE = (
    # part of a command, pattern of the line, why no check reads the word
    ("mountinfo", r".", "options of other mounts; `mount.options` reads those that are promised"),
    ("mountstats", r"local_lock|recover_session", "options of mounts; `mount.options` reads those that are promised"),
    ("rackproof-container", r"local_lock|recover_session", "options of mounts, seen inside a container"),
    ("dmesg", r".", "prose; the messages are compared with events"),
    ("journalctl", r".", "prose; the messages are compared with Xids"),
    ("lscpu", r"affected|Mitigation|Vulnerable|barriers", "`os.mitigations` reads the kernel's own files"),
    ("vulnerabilities", r"Mitigation: ", "the details of a mitigation"),
    ("ip -j addr", r'"lo"|eno|enp|stor|operstate', "ports outside the fabric; `nic.state` reads operstate and carrier"),
    ("rdma -j link", r"stor\d|mlx5_[89]", "ports outside the fabric; `nic.state` reads their state"),
    ("ethtool -a", r"Autonegotiate", "whether pause was negotiated; RX and TX are in force"),
    ("ethtool -i", r"supports-", "what the driver offers"),
    ("nvidia-smi -q -x", r"display_|addressing_mode|accounting|multigpu|^\s*None$", "displays and accounting"),
    ("nvidia-smi -q -x", r"reason_(?:gpu_idle|sw_power_cap|sync_boost|display_clocks)", "no fault at rest"),
    ("nvidia-smi -q -x", r"compute_mode", "asked before each load"),
    ("gdscheck", r"properties\.|IOMMU|PeerDirect|Driver Info", "libraries; the file systems' lines are judged"),
    ("meminfo", r"Active", "the name of a line"),
    ("lspci", r"prog-if", "the class of a bridge"),
    ("mlxconfig", r"Crypto|Description", "the card's description"),
    ("mlxlink", r"Loopback|Supported|Enabled Link|Recommendation", "the tool's advice; the rate is judged"),
    ("bonding", r"Bonding Mode|Primary Slave", "the name of a mode, and a preference"),
    ("cmdline", r".", "arguments; those that are promised are compared"),
    ("irqbalance", r"LoadState", "a unit that does not run may be absent"),
    ("scontrol", r"PowerUp|ResumeAfterTime|Default=|AllowQos|AccountingStorageEnforce|ConstrainDevices|Slurmctld"
                 r"|DefaultTime", "settings that nothing promises; `slurm.controller` asks the controllers"),
    ("scontrol show config", r".", "settings; `slurm.config` compares those that are promised"),
    ("unmunge", r"ZIP|MAC|CIPHER", "how the credential is packed"),
    ("srun --help", r".", "a help text"),
    ("ceph", r'"fsmap"|"up:standby"|autoscale|cache_mode|hit_set|"osd":0,"uuid"|osd_xinfo',
     "keys, and settings of pools; `ceph.osds` reads the counts"),
    ("dmidecode", r"SMBIOS", "the version of a table"),
    ("lctl", r"idle", "seconds without traffic"),
    ("apt-config", r"Compressor", "compressors of packages"),
)  # fmt: skip


def is_no_state(command: str, line: str) -> bool:
    return any(part in command and re.search(pattern, line) for part, pattern, _ in NO_STATE)


def variants(answer: CommandResult) -> Iterator[tuple[str, CommandResult]]:
    """The answer with one state word replaced; lines that differ only in numbers are tried once."""
    lines, tried = answer.stdout.split(b"\n"), set()
    for index, line in enumerate(lines):
        for place, match in enumerate(WORDS.finditer(line)):
            key = (re.sub(rb"\d+", b"#", line)[:120], place)
            if key in tried or len(tried) >= MOST:
                continue
            tried.add(key)
            changed = line[: match.start()] + UNKNOWN + line[match.end() :]
            text = line.decode("utf-8", "replace")
            shown = text[max(0, match.start() - 60) : match.end() + 30]
            yield shown, replace(answer, stdout=b"\n".join([*lines[:index], changed, *lines[index + 1 :]]))


def instead(variant: CommandResult, result: CommandResult) -> CommandResult:
    return variant if result.command == variant.command else result


def answers(subject: Subject) -> Iterator[tuple[str, str, list[Seen]]]:
    """Node, command and the cases that read its answer; each check on the first node that runs it."""
    asked: dict[tuple[str, str], list[Seen]] = {}
    known: set[str] = set()
    for node, cases in subject.healthy.items():
        fresh = [seen for seen in cases if seen.case.check.id not in known]
        known |= {seen.case.check.id for seen in cases}
        for seen in fresh:
            if seen.result.outcome is CheckOutcome.PASSED:
                for command in seen.commands:
                    asked.setdefault((node, command), []).append(seen)
    for (node, command), readers in asked.items():
        yield node, command, readers


@pytest.mark.parametrize("subject", subjects(), ids=lambda subject: subject.name)
def test_an_unknown_word_is_never_good(subject: Subject) -> None:
    tried, unnoticed = 0, []
    for node, command, readers in answers(subject):
        answer = subject.answers(node).read(command)
        for shown, variant in variants(answer):
            if is_no_state(command, shown):
                continue
            tried += 1
            context = subject.altered(node, partial(instead, variant))
            outcomes = (context.evaluate(seen.function, seen.case).outcome for seen in readers)
            if all(outcome is CheckOutcome.PASSED for outcome in outcomes):
                unnoticed.append(f"{command[:60]}: {shown.strip()}")
    assert tried > 30
    assert not unnoticed, "\n".join(unnoticed)
