# shellcheck shell=sh
# Mounts exports of NFS, the sources "$@", at folders of their own, until its input ends or a signal comes: one at $point,
# numbered ones at ${point}1, ${point}2 … Before that it unmounts what a killed run has left at any of these.
: "${point?}" "${options?}" "${numbered?}"
set -u
left() { awk -v point="$point" 'index($2, point) == 1 && substr($2, length(point) + 1) ~ /^[0-9]*$/ { print $2 }' \
  /proc/self/mounts; }
leave() {
  trap "" HUP INT TERM
  for _ in 1 2 3 4 5; do
    [ "$(left)" ] || break
    for at in $(left); do
      timeout -k 2 5 umount -- "$at" 2>/dev/null || timeout -k 2 5 umount -f -l -- "$at" 2>/dev/null || sleep 0.2
    done
  done
  rmdir -- "$point" "$point"[0-9]* 2>/dev/null
}
leave
trap leave EXIT
trap 'exit 1' HUP INT TERM
for source; do
  at=$point$numbered
  mkdir -m 755 -- "$at" || exit 1
  timeout -k 5 60 mount -t nfs -o "$options" -- "$source" "$at" || exit 1
  numbered=${numbered:+$((numbered + 1))}
done
echo rackproof-own-mount
cat >/dev/null
