"""A node's /sys in a folder, and programs that behave like those that read and set adapters."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rackproof.configure.nic.ports import script
from tests.unit.shell import executable, sh

MLNX_QOS = r"""
state=$RACKPROOF_ROOT/qos; mkdir -p "$state"
get() { said=$2; [ ! -e "$state/$1" ] || read -r said <"$state/$1"; echo "$said"; }
while [ $# -gt 0 ]; do
  case $1 in
  -i) shift ;;
  --trust) shift; echo "$1" >"$state/trust" ;;
  --pfc) shift; [ -e "$state/broken" ] || echo "$1" >"$state/pfc" ;;
  --dscp2prio) shift; IFS=, read -r _ d p <<END
$1
END
    echo "$p" >"$state/dscp$d" ;;
  --buffer_size) shift; echo "$1" >"$state/buffer_size" ;;
  --prio2buffer) shift; echo "$1" >"$state/prio2buffer" ;;
  *) exit 1 ;;
  esac
  shift
done
echo "DCBX mode: OS controlled"
echo "Priority trust state: $(get trust pcp)"
if [ "$(get trust pcp)" = dscp ]; then
  echo "dscp2prio mapping:"
  d=0
  while [ $d -lt 64 ]; do
    said=$((d / 8))
    [ ! -e "$state/dscp$d" ] || read -r said <"$state/dscp$d"
    case $d in [0-9]) two=0$d ;; *) two=$d ;; esac
    eval "line$said=\"\${line$said-}$two,\""
    d=$((d + 1))
  done
  for p in 0 1 2 3 4 5 6 7; do
    eval "line=\${line$p-}"
    [ -z "$line" ] || printf '\tprio:%d dscp:%s\n' $p "$line"
  done
fi
echo "default priority:"
echo "Receive buffer size (bytes): $(get buffer_size 130944,130944,0,0,0,0,0,0),total_size=262016"
echo "Cable len: 7"
echo "PFC configuration:"
printf '\tpriority    0   1   2   3   4   5   6   7\n\tenabled     %s   \n\tbuffer      %s   \n' \
  "$(get pfc 0,0,0,0,0,0,0,0 | sed 's/,/   /g')" "$(get prio2buffer 0,0,0,0,0,0,0,0 | sed 's/,/   /g')"
echo "tc: 0 ratelimit: unlimited, tsa: vendor"
"""

DCB = r"""
state=$RACKPROOF_ROOT/dcb; mkdir -p "$state"
get() { value=$2; [ ! -e "$state/$1" ] || read -r value <"$state/$1"; }
[ "$1" = -N ] && shift
case "$1 $2" in
"pfc show")
  printf 'prio-pfc'
  for p in 0 1 2 3 4 5 6 7; do get pfc$p off; printf ' %d:%s' $p "$value"; done
  echo ' '
  ;;
"pfc set") shift 5; for pair; do echo "${pair#*:}" >"$state/pfc${pair%:*}"; done ;;
"app show")
  printf 'dscp-prio'
  d=0
  while [ $d -lt 64 ]; do get app$d ""; [ -z "$value" ] || printf ' %d:%s' $d "$value"; d=$((d + 1)); done
  echo ' '
  ;;
"app replace") shift 5; for pair; do echo "${pair#*:}" >"$state/app${pair%:*}"; done ;;
"app flush") rm -f "$state"/app* ;;
*) exit 1 ;;
esac
"""

ETHTOOL = r"""
state=$RACKPROOF_ROOT/ethtool; mkdir -p "$state"
case $1 in
-a) printf 'Pause parameters for %s:\nAutonegotiate:\toff\nRX:\t\t%s\nTX:\t\t%s\n\n' "$2" \
    "$(cat "$state/pause_rx" 2>/dev/null || echo on)" "$(cat "$state/pause_tx" 2>/dev/null || echo on)" ;;
-g)
    printf 'Ring parameters for %s:\nPre-set maximums:\nRX:\t\t8192\nTX:\t\t8192\n' "$2"
    printf 'Current hardware settings:\nRX:\t\t%s\nTX:\t\t1024\n' "$(cat "$state/ring_rx" 2>/dev/null || echo 1024)" ;;
-A) echo "$4" >"$state/pause_$3" ;;
-G) echo "$4" >"$state/ring_$3" ;;
esac
"""

SETPCI = r"""
state=$RACKPROOF_ROOT/pci; mkdir -p "$state"
[ "$1" = -s ] || exit 1
file=$state/$2-$(echo "${3%%=*}" | tr '+' '_')
case $3 in
*=*)
  value=${3#*=}; mask=${value#*:}; value=${value%%:*}
  old=$(cat "$file")
  printf '%04x\n' $(((0x$old & ~0x$mask) | (0x$value & 0x$mask))) >"$file"
  ;;
*) [ -e "$file" ] || { echo "setpci: no capability" >&2; exit 1; }; cat "$file" ;;
esac
"""

RDMA = r"""
[ "$1 $2 $4" = "dev set name" ] || exit 1
old=$3; new=$5
class=$RACKPROOF_ROOT/sys/class/infiniband
[ -e "$class/$old" ] && [ ! -e "$class/$new" ] || { echo "error: File exists" >&2; exit 1; }
folder=$(readlink "$class/$old")
mv "$folder" "${folder%/*}/$new"
rm "$class/$old"
ln -s "${folder%/*}/$new" "$class/$new"
"""

UDEVADM_249 = """\
case " $* " in *" --property"* | *" --value "*) echo "udevadm: unrecognized option" >&2; exit 1 ;; esac
[ "$1" = info ] || exit 0
for device; do :; done
printf 'DEVPATH=/devices%s\nINTERFACE=%s\nSUBSYSTEM=net\n' "$device" "${device##*/}"
"""
"""udevadm as Ubuntu 22.04 has it; what follows may print ID_PATH of ``$device``."""


class Tree:
    def __init__(self, folder: Path) -> None:
        self.root, self.programs = folder / "root", folder / "bin"
        self.root.mkdir()

    def write(self, path: str, text: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def read(self, path: str) -> str:
        return (self.root / path.lstrip("/")).read_text().strip()

    def program(self, name: str, body: str) -> None:
        executable(self.programs / name, body)

    def run(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.sh(script(name), f"rackproof-{name}", *arguments)

    def sh(self, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """As the kit's own programs run, which find the folder by themselves."""
        return sh(script, *arguments, programs=self.programs, RACKPROOF_ROOT=str(self.root), RACKPROOF_WAIT_S="0")

    def port(self, name: str, slot: str, device: str, nvidia: bool = True) -> None:
        """An Ethernet port, with the files of NVIDIA's drivers or of the kernel's own."""
        pci = self.root / "sys/devices" / slot
        (pci / "infiniband" / device / "tc/1").mkdir(parents=True)
        for path, target in (
            (f"sys/class/net/{name}/device", pci),
            (f"sys/class/infiniband/{device}", pci / "infiniband" / device),
            (f"sys/bus/pci/devices/{slot}", pci),
        ):
            link = self.root / path
            link.parent.mkdir(parents=True, exist_ok=True)
            os.symlink(target, link)
        self.write(f"/sys/class/net/{name}/type", "1\n")
        self.write(f"/sys/class/net/{name}/mtu", "9000\n")
        self.write(f"/pci/{slot}-CAP_EXP_8.w", "2937\n")
        for key, value in (("default_roce_tos", "0"), ("default_roce_mode", "RoCE v2")):
            self.write(f"/sys/kernel/config/rdma_cm/{device}/ports/1/{key}", f"{value}\n")
        if nvidia:
            for point in ("rp", "np"):
                for priority in range(8):
                    self.write(f"/sys/class/net/{name}/ecn/roce_{point}/enable/{priority}", "1\n")
            self.write(f"/sys/class/net/{name}/ecn/roce_np/cnp_dscp", "48\n")
            self.write(f"/sys/class/net/{name}/ecn/roce_np/cnp_802p_prio", "6\n")
        else:
            self.write(f"/sys/kernel/debug/mlx5/{slot}/cc_params/np_cnp_dscp", "48\n")
            self.write(f"/sys/kernel/debug/mlx5/{slot}/cc_params/np_cnp_prio", "6\n")
