# shellcheck shell=sh
# A worker of a batch: walks along the list of commands and runs each that no other worker has taken.
: "${blocks?}"
ulimit -f "$blocks" 2>/dev/null
set -C
n=-1
for c in "$@"; do
  n=$((n + 1))
  [ -e "$n.a" ] && continue
  { read -r t _ </proc/uptime; echo "$PPID $t" >"$n.a"; } 2>/dev/null || continue
  sh -c "$c" </dev/null >"$n.out" 2>"$n.err"
  rc=$?
  { read -r t _ </proc/uptime; echo "$rc $t" >"$n.rc"; } 2>/dev/null || rm -f room
done
