# shellcheck shell=sh
# Free bytes of a mount for the account that measures, bytes of the files that earlier benchmarks left there, and the
# number of complete shards of data sets, a line each. Positional parameters: folders of these files, "--", indexes.
# Fails without a mount that answers in time, and where files are too many to be counted in time.
: "${mountpoint?}" "${stem?}"
timeout -k 2 20 mountpoint -q -- "$mountpoint" || exit 1
timeout -k 2 20 stat -f -c '%S %b %a' -- "$mountpoint" || exit 1
own=0
while [ "$1" != -- ]; do
  blocks=$(timeout -k 2 20 find "$1" -xdev -type f \( -name "$stem.*" -o -name 'gdsio.*' \) -printf '%b\n' 2>/dev/null)
  [ "$?" -lt 124 ] || exit 1
  own=$((own + $(printf '%s\n' "$blocks" | awk '{sum += $1} END {printf "%.0f\n", sum * 512}')))
  shift
done
shift
echo "$own"
for index; do
  entries=$(timeout -k 2 20 find "$index" -xdev -maxdepth 1 -type f -name '*.json' -printf '1\n' 2>/dev/null)
  [ "$?" -lt 124 ] || exit 1
  printf '%s\n' "$entries" | awk '{sum += $1} END {printf "%.0f\n", sum}'
done
