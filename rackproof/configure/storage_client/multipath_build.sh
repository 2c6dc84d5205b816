# shellcheck shell=sh
# Builds the packages of an NFS client from its unpacked sources. "$@": options of build.sh.
: "${log?}"
timeout 800 ./build.sh bin "$@" >"$log" 2>&1 || { tail -n 5 "$log" >&2; exit 1; }
