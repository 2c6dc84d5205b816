# shellcheck shell=sh
# Free bytes of a mount for the account that measures, and bytes of the files that earlier benchmarks left there.
# Positional parameters: folders of these files. Prints nothing without a mount that answers in time.
: "${mountpoint?}" "${stem?}"
timeout -k 2 20 mountpoint -q -- "$mountpoint" || exit 1
timeout -k 2 20 stat -f -c '%S %b %a' -- "$mountpoint" || exit 1
for folder; do
  timeout -k 2 20 find "$folder" -xdev -maxdepth 1 -type f -name "$stem.*" -printf '%b\n' 2>/dev/null
done | awk '{blocks += $1} END {printf "%.0f\n", blocks * 512}'
