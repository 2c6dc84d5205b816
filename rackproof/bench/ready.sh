# shellcheck shell=sh
# Waits up to 5 s until the programs of these jobs are ready for a common start; exit status 3: not yet.
# Prints why a program ended.
: "${start?}"
tries=10
for job in "$@"; do
  until [ -e "$start.$job" ]; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || exit 3
    sleep 0.5
  done
  cat -- "$start.$job"
done
