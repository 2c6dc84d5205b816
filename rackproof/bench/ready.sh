# shellcheck shell=sh
# Waits up to 5 s until the programs of these jobs are ready for a common start; exit status 3: not yet.
# Prints a line for each program that ended, why.
: "${start?}"
tries=10
for job in "$@"; do
  until [ -e "$start.$job" ]; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || exit 3
    sleep 0.5
  done
  [ ! -s "$start.$job" ] || { head -c 300 -- "$start.$job" && echo; }
done
