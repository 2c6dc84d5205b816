"""Text that a program prints before its document or table: parsers read past it, and it is shown, whatever it says."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from rackproof.core.wording import shortened

_SHOWN: Final = 3
"""Lines."""
_LONGEST: Final = 160
_JSON: Final = r"\s*[{\[]\s*(?:[\"{\[\]}]|$)"
_LINE: Final = re.compile(r"[^\n]+")
_KERNEL: Final = r"(?:<\d+>)?\[ *\d+\.\d+\]"
BEGINNINGS: Final = (
    # part of a command, first line of what it was asked for
    (r"rackproof load \d", r"rackproof load \d$"),
    (r"nvidia-smi -q -x", r"<\?xml|<nvidia_smi_log"),
    (r"nvidia-smi topo", r"\s+(?:\x1b\[[\d;]*m)*GPU0\b"),
    (r"nv-fabricmanager --version", r"\s*Fabric Manager version"),
    (r"/proc/driver/nvidia/version", r"NVRM version:"),
    (r"gdscheck", r"\s*GDS release version:"),
    (r"nvidia-ctk cdi", r".*Found \d+ CDI devices"),
    (r"\bdmidecode -t", r"# dmidecode"),
    (r"\bping -n", r"PING \S+ \("),
    (r"getent ahosts", r"[\d.:a-f]+ +STREAM"),
    (r"\bmlnx_qos\b", r"DCBX mode:|Priority trust state:|PFC configuration:|dcb$"),
    (r"\b(?:mlx|mst)config\b", r"Device #\d+:"),
    (r"\bmlxlink\b", r"(?:\x1b\[[\d;]*m)?Operational Info"),
    (r"\bibv_devinfo(?! -l)", r"hca_id:"),
    (r"\bdmesg\b|\bjournalctl -k", _KERNEL),
    (r"tuned-adm active", r"(?:Current|No current) active profile"),
    (r"scontrol ping", r"Slurmctld\("),
    (r"slurmd -C", r"NodeName="),
    (r"\bunmunge\b", r"STATUS:"),
    (r"srun --help", r"Usage: srun"),
    (r"/proc/fs/beegfs/\*/meta_nodes", r"\S+ \[ID: \d+\]"),
    (r"beegfs-ctl --listtargets", r"TargetID\b|=+$"),
    (r"/proc/wekafs/interface", r"IO node version|mount:"),
    (r"daos_agent dump-attachinfo", r"name: "),
    (r"cat /proc/self/mountinfo; echo", r"\d+ \d+ \d+:\d+ "),
    (r"\bib_\w+_(?:bw|lat) ", r" ?-{80,}|\s*#bytes"),
    (r"\w_perf\b", r"(?:\s*\d+: ?|\[\S+\]<std(?:out|err)>: ?)?#"),
    (r"\bnvme smart-log", r"drive nvme\d+$"),
    (r"\bethtool -a ", r"Pause parameters for"),
    (r"/edac/mc/", r"controllers \d+$"),
    (r"mmfsadm test verbs", r"VERBS RDMA status:"),
    (r"^uname -r", r"\d+\.\d+\S*$"),
    (r"^id -u ", r"\d+$"),
    (r"cat /etc/os-release; echo --", r"[A-Z_]+="),
    (r"\bip -j|\brdma -j|\blscpu -J|-f json|\{\{json|crictl info|dcgmi diag .*-j|\biperf3 -c|\bmpirun\b", _JSON),
    (r"\bnvidia-imex-ctl .*-j", _JSON),
    (r"\bnvbandwidth -j|/gpu\.py ", _JSON),
)  # fmt: skip
"""Parsers of other outputs refuse a line that they do not know, and quote it."""


def printed_before(command: str, output: bytes | str) -> str:
    """The first lines before what a command was asked for; empty where there are none, or where that never begins."""
    first = _first_line(command)
    if first is None:
        return ""
    before: list[str] = []
    text = output if isinstance(output, str) else output.decode(errors="replace")
    for line in (match[0] for match in _LINE.finditer(text)):  # lazily: mostly the first line is the answer's
        if first.match(line):
            return "; ".join(before[:_SHOWN])
        words = " ".join(line.split())
        if any(character.isalnum() for character in words):
            before.append(shortened(words, _LONGEST))
    return ""


@lru_cache(maxsize=4096)
def _first_line(command: str) -> re.Pattern[str] | None:
    return next((re.compile(first) for part, first in BEGINNINGS if re.search(part, command)), None)
