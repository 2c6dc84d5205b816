# shellcheck shell=sh
# Mounts an export of NFS at a folder of its own, until its input ends or a signal comes. Before that it unmounts what a
# killed run has left there.
: "${point?}" "${source?}" "${options?}"
set -u
leave() {
  trap "" HUP INT TERM
  for _ in 1 2 3 4 5; do
    awk -v point="$point" '$2 == point { found = 1 } END { exit !found }' /proc/self/mounts || break
    timeout -k 2 5 umount -- "$point" 2>/dev/null || timeout -k 2 5 umount -f -l -- "$point" 2>/dev/null || sleep 0.2
  done
  rmdir -- "$point" 2>/dev/null
}
leave
trap leave EXIT
trap 'exit 1' HUP INT TERM
mkdir -m 755 -- "$point" || exit 1
timeout -k 5 60 mount -t nfs -o "$options" -- "$source" "$point" || exit 1
echo rackproof-own-mount
cat >/dev/null
