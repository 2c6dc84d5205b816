# shellcheck shell=sh
# Takes the run lock, or fails with one line that names its holder.
# rp_lock FILE RUN WHO HOST OTHER: OTHER is a run that the lock may be taken from. Needs run_lock.sh.
: "${rp_l_wait_s?}" "${rp_l_option?}"
rp_lock_connection() {
  rp_l_p=$$
  while [ "${rp_l_p:-0}" -gt 1 ]; do
    rp_l_c=$(cat "/proc/$rp_l_p/comm" 2>/dev/null)
    case $rp_l_c in
      sshd* | dropbear* | pyinfra* | python*) echo "pid=$rp_l_p"; echo "begun=$(rp_lock_begun "$rp_l_p")"; return ;;
    esac
    rp_l_p=$(sed -n 's/^PPid:[^0-9]*//p' "/proc/$rp_l_p/status" 2>/dev/null)
  done
}
# A run that was interrupted may have left a command: it still changes the node.
rp_lock_left() {
  rp_l_job='' rp_l_jobbegun=''
  while IFS='=' read -r rp_l_k rp_l_v; do
    case $rp_l_k in job) rp_l_job=$rp_l_v ;; jobbegun) rp_l_jobbegun=$rp_l_v ;; esac
  done <"$1"
  [ -n "$rp_l_jobbegun" ] && [ "$(rp_lock_begun "$rp_l_job")" = "$rp_l_jobbegun" ]
}
rp_lock() (
  umask 022
  mkdir -p -- "${1%/*}" || exit 1
  exec 9>>"$1"
  flock -w "$rp_l_wait_s" 9 || { echo "$1 could not be locked: nothing was changed" >&2; exit 1; }
  # shellcheck disable=SC2154  # set by rp_lock_read
  if rp_lock_read "$1" && [ "$rp_l_run" != "$2" ] && [ "$rp_l_run" != "$5" ]; then
    echo "run $rp_l_run of $rp_l_who on $rp_l_from works on this node since $rp_l_since, so nothing was changed;" \
      "wait for its end, or take the node from it: $rp_l_option$rp_l_run" >&2
    exit 1
  fi
  if [ "$rp_l_run" != "$2" ] && [ "$rp_l_run" != "$5" ] && rp_lock_left "$1"; then
    echo "run $rp_l_run of $rp_l_who on $rp_l_from has ended and left a command that still runs (process $rp_l_job)," \
      "so nothing was changed; wait for its end" >&2
    exit 1
  fi
  [ "$rp_l_run" = "$2" ] || rp_l_since=$(date -u +%Y-%m-%dT%H:%M:%SZ)
  printf 'run=%s\nwho=%s\nfrom=%s\nsince=%s\n%s\njob=%s\njobbegun=%s\n' "$2" "$3" "$4" "$rp_l_since" \
    "$(rp_lock_connection)" "$$" "$(rp_lock_begun "$$")" >"$1" || exit 1
)
