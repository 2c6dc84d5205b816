# shellcheck shell=sh
# let_go UNIT MOUNTPOINT: unmounts, or fails and names the processes that use the mount.
: "${stop_limit_s?}"
busy() {
  # Reads links in /proc only, never below the mount.
  find /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/exe /proc/[0-9]*/fd -maxdepth 1 \
    \( -lname "$1" -o -lname "$1/*" \) -printf '%h\n' 2>/dev/null | cut -d/ -f3 | sort -un |
    while read -r p; do printf ' %s(%s)' "$(cat "/proc/$p/comm" 2>/dev/null)" "$p"; done
}
let_go() {
  timeout -k 5 "$stop_limit_s" systemctl stop -- "$1" 2>/dev/null
  grep -qF " $2 " /proc/self/mounts || return 0
  who=$(busy "$2")
  if [ -n "$who" ]; then
    echo "$2 is in use by$who: end them or let them finish, then run this again" >&2
  else
    echo "$2 cannot be unmounted, and no process uses it: does its server answer? umount -l $2 detaches it" >&2
  fi
  return 1
}
