# shellcheck shell=sh
# Reads the run lock. rp_lock_read FILE: sets rp_l_run, rp_l_who, rp_l_from and rp_l_since; fails when no run holds the
# node.
: "${rp_l_limit_s?}"
rp_lock_begun() {
  rp_l_s=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  rp_l_s=${rp_l_s##*) }
  # shellcheck disable=SC2086  # its words
  set -- $rp_l_s
  [ $# -lt 20 ] || echo "${20}"
}
rp_lock_read() {
  rp_l_run='' rp_l_who='' rp_l_from='' rp_l_since='' rp_l_pid='' rp_l_begun=''
  while IFS='=' read -r rp_l_k rp_l_v; do
    # shellcheck disable=SC2034  # for the caller
    case $rp_l_k in
      run) rp_l_run=$rp_l_v ;; who) rp_l_who=$rp_l_v ;; from) rp_l_from=$rp_l_v ;; since) rp_l_since=$rp_l_v ;;
      pid) rp_l_pid=$rp_l_v ;; begun) rp_l_begun=$rp_l_v ;;
    esac
  done <"$1"
  [ -n "$rp_l_run" ] || return 1
  if [ -n "$rp_l_pid" ] && [ -n "$rp_l_begun" ]; then
    [ "$(rp_lock_begun "$rp_l_pid")" = "$rp_l_begun" ]
  else
    [ $(($(date +%s) - $(stat -c %Y -- "$1"))) -lt "$rp_l_limit_s" ]
  fi
}
