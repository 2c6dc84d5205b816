# shellcheck shell=sh
# Wait for the locks of a package manager, and name the process that holds one.
# Builtins and coreutils only: a small installation has neither fuser nor lsof.

rp_lock_holder() {
  for rp_f; do
    case $rp_f in
    *.pid)
      # dnf writes its process id. The file stays behind when dnf was killed.
      [ -s "$rp_f" ] || continue
      read -r rp_pid <"$rp_f" || [ -n "$rp_pid" ] || continue
      [ -d "/proc/$rp_pid" ] || continue
      ;;
    *)
      [ -e "$rp_f" ] || continue
      rp_inode=$(stat -c %i -- "$rp_f") || continue
      # The list is read at once: a shell reads single bytes, and a lock that goes meanwhile hides another one.
      # shellcheck disable=SC2002
      rp_pid=$(cat /proc/locks | while read -r _ _ _ _ rp_pid rp_device _; do
        case $rp_device in *:"$rp_inode") ;; *) continue ;; esac
        # Inode numbers repeat on other file systems: the process must have this very file open.
        for rp_fd in "/proc/$rp_pid/fd"/*; do
          # shellcheck disable=SC3013 # dash and busybox have -ef; readlink would be a process for each of thousands
          [ "$rp_fd" -ef "$rp_f" ] || continue
          echo "$rp_pid"
          break 2
        done
      done)
      [ -n "$rp_pid" ] || continue
      ;;
    esac
    echo "$rp_pid ($(tr '\0' ' ' <"/proc/$rp_pid/cmdline" 2>/dev/null | head -c 200))"
    return 0
  done
  return 1
}
rp_wait_for_lock() {
  rp_wait_s=$1 rp_n=0
  shift
  while rp_h=$(rp_lock_holder "$@"); do
    if [ "$rp_n" -ge "$rp_wait_s" ]; then
      echo "the package manager is locked by process $rp_h after $rp_wait_s s; let it finish or end it, then run again" >&2
      exit 1
    fi
    rp_n=$((rp_n + 1))
    sleep 1
  done
}
