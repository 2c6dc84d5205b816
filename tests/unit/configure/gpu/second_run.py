"""A node with GPUs in a folder whose package manager, module loader, services and nvidia-smi remember what they did."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from rackproof.configure.gpu.install import PARAMETERS
from tests.unit.configure.gpu.node import FakeNode
from tests.unit.configure.loop import SYSTEMCTL
from tests.unit.configure.package_managers import stand_ins

ROOT = Path(__file__).parents[4]
REPORT = ROOT / "tests/data/written/hgx-h200-roce/gpu-01/gpu/query.xml"
FURTHER = ("cp", "date", "env", "id", "ln", "rmdir", "seq", "sync", "tee", "uniq", "wc")
UNIT = "/etc/systemd/system/nvidia-fabricmanager.service"

OPEN = "Open Kernel Module for x86_64  {}  Release Build  (dvs-builder@U22-I3-AE18-23-3)  Tue Jul  8 18:32:15 UTC 2025"
CLOSED = "x86_64 Kernel Module  {}  Mon Mar  3 18:35:59 UTC 2025"


def module(version: str, open_: bool) -> str:
    """/proc/driver/nvidia/version of a driver."""
    kind = (OPEN if open_ else CLOSED).format(version)
    return f"NVRM version: NVIDIA UNIX {kind}\nGCC version:  gcc version 13.3.0\n"


def of_two_gpus(report: str) -> str:
    """``nvidia-smi -q -x`` of eight, without six: a process for each of them would only cost time."""
    head, *gpus = report.split("\t<gpu ")
    tail = "</nvidia_smi_log>\n"
    assert gpus[-1].endswith(tail)
    kept = "".join(f"\t<gpu {gpu}" for gpu in gpus[:2])
    return head.replace("<attached_gpus>8<", "<attached_gpus>2<") + kept + tail


MODINFO = r"""
[ -e @root@/built ] || { echo "modinfo: ERROR: Module nvidia not found." >&2; exit 1; }
case "$*" in *version*) echo @version@;; *) echo "@license@";; esac
"""
MODPROBE = r"""
n=$(echo "$1" | tr - _); mkdir -p /sys/module/$n
[ "$n" = nvidia ] || { echo 0 >/sys/module/$n/refcnt; exit 0; }
echo @version@ >/sys/module/nvidia/version
printf %s '@module@' >/proc/driver/nvidia/version
sed -n 's/^options nvidia //p' /etc/modprobe.d/rackproof-nvidia.conf | tr ' ' '\n' |
  sed -n 's/^NVreg_\([^=]*\)=/\1: /p' | sed '@renamed@' >/proc/driver/nvidia/params
printf 'RegistryDwords: ""\nGpuBlacklist: ""\n' >>/proc/driver/nvidia/params
"""
NVIDIA_SMI = r"""
S=@root@/smi
[ -d $S ] || mkdir -p $S
get() { if [ -e $S/$1 ]; then read -r kept <$S/$1; echo "$kept"; else echo "$2"; fi; }
partitions() {
  [ -e $S/parts ] || return 0
  read -r kept <$S/parts; i=0; IFS=,
  for part in $kept; do printf '  MIG %-11s Device %2d: (UUID: MIG-%d)\n' "$part" $i $((i + 1)); i=$((i + 1)); done
  unset IFS
}
case "$*" in
"--query-gpu=index "*) seq 0 1;;
*--query-gpu=ecc.mode.pending*) get ecc Enabled;;
*--query-gpu=mig.mode.*) get mig Disabled;;
"-i "*" -e 0") echo Disabled >$S/ecc;;
"-i "*" -e 1") echo Enabled >$S/ecc;;
"-i "*" -mig 0") echo Disabled >$S/mig;;
"-i "*" -mig 1") echo Enabled >$S/mig;;
"mig -i "*" -cgi "*" -C") echo "$5" >$S/parts;;
"mig -i "*" -dgi") rm -f $S/parts;;
"mig "*) ;;
"-pl "*) echo "$2" >$S/power;;
"-ac "*) echo "$2" >$S/clocks;;
"-lgc "*|"-lmc "*) ;;
"-i "*" -L") echo "GPU $2: NVIDIA H200 (UUID: GPU-x)"; partitions;;
-L) sed -n 's|.*<uuid>\(GPU-[^<]*\)</uuid>.*|\1|p' @report@ | awk '{ print NR - 1, $1 }' | while read -r n u; do
  echo "GPU $n: NVIDIA H200 (UUID: $u)"; partitions; done;;
"-q -x") c=$(get clocks 3201,1980)
  sed -e "s|\(<current_power_limit>\)[^<]*|\1$(get power 700.00) W|" -e "s|\(_mig>\)[^<]*|\1$(get mig Disabled)|" \
    -e "s|\(<current_ecc>\)[^<]*|\1$(get ecc_now Enabled)|" -e "s|\(<pending_ecc>\)[^<]*|\1$(get ecc Enabled)|" \
    -e "/<applications_clocks>/,/<.applications_clocks>/{s|\(<graphics_clock>\)[^<]*|\1${c#*,} MHz|;s|\(<mem_clock>\)[^<]*|\1${c%,*} MHz|;}" \
    @report@;;
-q) for n in 0 1; do printf '    Fabric\n        State                             : %s\n' "$(get fabric Completed)"; done;;
*) echo "nvidia-smi: $*" >&2; exit 2;;
esac
"""  # noqa: E501


class GpuNode(FakeNode):
    """``version``, ``open_``: of the driver that its repositories have."""

    def __init__(self, root: Path, version: str, open_: bool) -> None:
        super().__init__(root)
        self.version, self.open = version, open_
        (root / "report.xml").write_text(of_two_gpus(REPORT.read_text()))
        for name in FURTHER:
            program = shutil.which(name)
            assert program, name
            (self.bin / name).symlink_to(program)
        managers = stand_ins(root / "packages", f"* {version}-0ubuntu1\n")
        for name in ("apt-get", "dnf"):
            managers[name] += "case $* in *assumeno*) ;; *' install '*) : >@root@/built;; esac\n"
        for name, body in {
            **managers, "modinfo": MODINFO, "modprobe": MODPROBE, "nvidia-smi": NVIDIA_SMI, "systemctl": SYSTEMCTL,
        }.items():  # fmt: skip
            self.program(name, body)
        for name in ("update-initramfs", "dracut"):
            self.program(name)
        (root / "units").mkdir()
        # As NVIDIA packages it: what it waits for waits for it.
        self.file(
            "/units/nvidia-fabricmanager.service.packaged", "[Unit]\nAfter=network-online.target multi-user.target\n"
        )
        self.file("/sys/bus/pci/devices/0000:19:00.0/vendor", "0x10de\n")

    def rooted(self, script: str) -> str:
        renamed = ";".join(f"s/^{option}:/{name}:/" for option, name in PARAMETERS.items())
        for word, value in {
            "root": str(self.root), "version": self.version, "report": f"{self.root}/report.xml", "renamed": renamed,
            "license": "Dual MIT/GPL" if self.open else "NVIDIA",
            "module": module(self.version, self.open),
        }.items():  # fmt: skip
            script = script.replace(f"@{word}@", value)
        return super().rooted(script)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Its answers name no folder of ours."""
        done = super().run(script)
        done.stdout = done.stdout.replace(str(self.root), "")
        return done
