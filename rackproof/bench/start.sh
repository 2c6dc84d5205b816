# shellcheck shell=sh
# Tells the programs of a node the moment of the common start, or why there is none.
: "${start?}" "${told?}"
umask 077
printf '%s\n' "$told" >"$start.part" && mv -f -- "$start.part" "$start"
