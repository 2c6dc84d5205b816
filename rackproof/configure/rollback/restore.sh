# shellcheck shell=sh
# Functions that restore the state in a journal; restore_script.py calls them in order, under "set -eu".
: "${stop_limit_s?}" "${initramfs_limit_s?}"
back_stop() {
  # UNIT
  ! systemctl is-active --quiet -- "$1" || timeout "$stop_limit_s" systemctl stop -- "$1" ||
    { echo "$1 could not be stopped (is it busy?): nothing was restored" >&2; exit 1; }
}
back_stop_added() {
  # UNIT whose file is removed. The package's own unit of that name, which the file overrode, stays.
  [ -e "/usr/lib/systemd/system/$1" ] || back_stop "$1"
}
back_users() {
  # FOLDER: one of a user's own that is a link leads root elsewhere
  case $1 in */.ssh) [ ! -L "$1" ] || { echo "$1 is a link: none was restored" >&2; exit 1; } ;; esac
}
back_full() {
  echo 'the old files could not be written (is the disk full?): none was restored' >&2
  exit 1
}
back_link() {
  # DATA FOLDER NEW
  back_users "$2"
  { mkdir -p -- "$2" && ln -sfn -- "$(cat -- "$1")" "$3"; } || back_full
}
back_file() {
  # DATA FOLDER NEW MODE OWNER. Never writes through a link: other users may write to the folder.
  back_users "$2"
  { mkdir -p -- "$2" && rm -f -- "$3" && (umask 077; set -C; cat -- "$1" >"$3") && chown -h "$5" -- "$3" &&
    chmod "$4" -- "$3"; } || back_full
}
back_directory() {
  # PATH MODE OWNER
  mkdir -p -- "$1" && chmod "$2" -- "$1" && chown "$3" -- "$1"
}
back_remove_directory() {
  # PATH
  rmdir -- "$1" 2>/dev/null || [ ! -e "$1" ] || echo "$1: not empty, left there"
}
back_unmask() {
  # UNIT
  [ "$(systemctl is-enabled -- "$1" 2>/dev/null)" != masked ] || systemctl unmask --no-reload -- "$1"
}
back_locks() {
  # PACKAGE DATA: the versions that were locked, not those that are installed
  dnf -q -y versionlock delete "$1" >/dev/null 2>&1 || :
  [ -z "$2" ] || while read -r e; do dnf -q -y versionlock add --raw "$e" </dev/null >/dev/null; done <"$2"
}
back_kernel() {
  # IMAGE
  if [ -e "$1" ]; then
    grubby --set-default "$1" >/dev/null
  else
    echo "$1: no longer installed, the default kernel stays" >&2
  fi
}
back_arguments() {
  # DATA
  now=$(grubby --info=DEFAULT | sed -n 's/^args="\(.*\)"$/\1/p' | head -n 1)
  grubby --update-kernel=ALL --remove-args="$now" --args="$(cat -- "$1")"
}
back_initramfs() {
  if command -v update-initramfs >/dev/null; then
    set -- update-initramfs -u -k all
  elif command -v dracut >/dev/null; then
    set -- dracut --force --regenerate-all
  else
    return 0
  fi
  timeout "$initramfs_limit_s" "$@" >/dev/null || {
    echo 'files are restored, but the initramfs images could not be regenerated: regenerate them before a reboot' >&2
    exit 1
  }
}
back_running() {
  # VERB UNIT MARK: after a failure the other units are still restarted
  # shellcheck disable=SC2034  # read by the script
  { { ! systemctl is-active --quiet -- "$2" || systemctl "$1" -- "$2"; } && rm -f -- "$3"; } || failed=1
}
