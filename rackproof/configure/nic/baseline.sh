# shellcheck shell=sh
# Clear the counters that the adapters can clear, and keep the values of the others. The arguments are ports.
: "${baseline?}"
set -eu
mkdir -p "${baseline%/*}"
if command -v mlxlink >/dev/null; then
  for p; do
    s=$(cd -P "/sys/class/net/$p/device" && pwd)
    timeout 60 mlxlink -d "${s##*/}" --pc >/dev/null || { echo "$p: mlxlink could not clear the counters" >&2; exit 1; }
  done
fi
{
  cat /proc/sys/kernel/random/boot_id
  for p; do
    read -r n <"/sys/class/net/$p/carrier_down_count"
    echo "$p $n"
  done
  for c in /sys/class/infiniband/*/ports/*/counters/link_downed; do
    [ -r "$c" ] || continue
    read -r n <"$c"
    p=${c%/counters/*}
    d=${p%/ports/*}
    echo "${d##*/}/${p##*/} $n"
  done
} >"$baseline.new"
mv -f "$baseline.new" "$baseline"
