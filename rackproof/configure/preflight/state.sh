# shellcheck shell=sh
# Functions for the facts of preflight.
: "${busy_shown?}"
space() {
  # PATH…: free space of the file system
  for p; do echo "$p $(df -Pk -- "$p" 2>/dev/null | tail -n 1)"; done
}
broken_packages() {
  if command -v dpkg >/dev/null; then
    echo dpkg
    dpkg --audit 2>&1 | grep . | head -n 4
  elif command -v rpm >/dev/null; then
    echo rpm
    rpm -q rpm >/dev/null 2>&1 || rpm -q rpm 2>&1 | head -n 4
  fi
}
system_state() {
  systemctl is-system-running
  [ ! -e /run/systemd/shutdown/scheduled ] || tr '\n' ' ' </run/systemd/shutdown/scheduled
  echo
}
mount_users() {
  # MOUNTPOINT…: processes that work in it
  [ $# -gt 0 ] || return 0
  links=$(find /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/fd -maxdepth 1 -type l -printf '%p %l\n' 2>/dev/null |
    grep -F -- "$(printf ' %s\n' "$@")")
  for m; do
    grep -qF -- " $m " /proc/self/mounts || continue
    printf '%s' "$m"
    [ -z "$links" ] || printf '%s\n' "$links" | while read -r p link; do
      case "$link" in "$m" | "${m%/}/"*) echo "$p" ;; esac
    done | cut -d/ -f3 | sort -un | head -n "$busy_shown" |
      while read -r p; do printf " %s(%s)" "$p" "$(cat "/proc/$p/comm" 2>/dev/null)"; done
    echo
  done
}
