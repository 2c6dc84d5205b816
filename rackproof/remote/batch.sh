# shellcheck shell=sh
# Runs the commands in "$@" and prints their results in one answer; see batch.py.
: "${magic?}" "${kill_after_s?}" "${budget_s?}" "${busy_moment_s?}" "${moment_s?}" "${over_s?}" "${gone_s?}"
: "${stream_limit?}" "${answer_limit?}" "${places?}" "${room_bytes?}" "${last?}" "${workers_wanted?}" "${most_workers?}"
: "${most_hired?}" "${worker_code?}"
hire() {
  live=$((live + 1)) hired=$((hired + 1))
  {
    timeout -k "$kill_after_s" "$budget_s" sh -c "$worker_code" worker "$@" 3>&- & worker=$!
    wait $worker
    : >"$worker.gone"
    echo end >&3
  } </dev/null >/dev/null 2>&1 &
}
dismiss() {
  read -r worker t _ <"$1.a" && ! [ -e "$worker.gone" ] && kill "$worker"
}
weigh() {
  sum=0
  # shellcheck disable=SC2046  # size and name in turn
  set -- $(stat -c '%s %n' "$@")
  while [ $# -gt 1 ]; do
    if [ "$1" -le "$stream_limit" ]; then
      sum=$((sum + $1))
    else
      { printf '%65536s' x >probe; } 2>/dev/null || rm -f room
      [ -s "${2%.*}.rc" ] || dismiss "${2%.*}"
      : >"${2%.*}.big"
      : >"$2"
    fi
    shift 2
  done
}
look() {
  # A busy node skips ticks: use its uptime if it has one.
  now=$((now + 1)) up=
  { read -r up _ </proc/uptime; } && up=${up%.*} && now=$((up - ${began:=$up}))
  # A small node may share its processors with others, which its load does not show.
  [ "$cpus" -le 2 ] && busy=$now
  { read -r _ _ _ runnable _ </proc/loadavg; } && [ $((${runnable%/*} - 1)) -ge "$cpus" ] && busy=$now
  [ $((now - busy)) -lt "$moment_s" ] && moment=$busy_moment_s || moment=$moment_s
  stuck=0 n=$first
  set --
  while [ -e "$n.a" ]; do
    if ! [ -s "$n.rc" ]; then
      t=
      read -r worker t program <"$n.a"
      if [ -n "$t" ] && [ -n "$up" ]; then
        t=$((up - ${t%.*}))
      else
        eval "t=\$((\${t$n:-0} + 1)); t$n=\$t"
      fi
      [ "$t" -ge "$moment" ] && [ "$t" -le "$gone_s" ] && stuck=$((stuck + 1))
      [ "$t" -ge "$over_s" ] && ! [ -e "$n.late" ] && : >"$n.late" && { [ -z "$program" ] || : >"hung.$program"; } && dismiss "$n"
      [ "$t" -ge 1 ] && set -- "$@" "$n.out" "$n.err"
    elif [ $n -eq $first ]; then
      first=$((n + 1))
    fi
    n=$((n + 1))
  done
  [ $# -eq 0 ] || weigh "$@"
}
stop() {
  kill "$clock"
  for a in *.a; do
    [ -s "${a%.a}.rc" ] || dismiss "${a%.a}"
  done
  cd /
  rm -rf "$d" || rm -rf "$d"
}
main() {
  umask 077
  LC_ALL=C
  export LC_ALL
  for place in $places; do
    d=$(mktemp -d "$place/rackproof.XXXXXX" 2>/dev/null) || continue
    cd "$d" && { printf "%${room_bytes}s" x >room; } 2>/dev/null && break
    cd / && rm -rf "$d"
    d=
  done
  [ -n "$d" ] || { echo "no room for answers in $places" >&2; exit 1; }
  : >room
  mkfifo events && exec 3<>events || exit 1
  # Without the script's own streams: a hanging process must not keep the connection open.
  { while sleep 1; do echo tick; done; } </dev/null >&3 2>/dev/null & clock=$!
  trap 'stop 2>/dev/null' EXIT
  trap 'exit 143' TERM HUP INT
  live=0 hired=0 stuck=0 now=0 first=0 busy=-$moment_s began='' how=stopped
  cpus=$(getconf _NPROCESSORS_ONLN 2>/dev/null)
  [ "${cpus:-0}" -gt 0 ] 2>/dev/null || cpus=1000000
  [ "$cpus" -gt 2 ] && workers=$workers_wanted || workers=1
  look 2>/dev/null
  while :; do
    [ $stuck -eq 0 ] && need=$workers || need=1
    while ! [ -e "$last.a" ] && [ $((live - stuck)) -lt "$need" ] && [ $live -lt "$most_workers" ] &&
      [ $hired -lt "$most_hired" ]; do
      hire "$@"
    done
    [ $live -eq 0 ] && how=complete && break
    read -r event <&3
    case $event in
      end) live=$((live - 1)) ;;
      tick) look 2>/dev/null; [ $now -lt "$budget_s" ] || break ;;
    esac
  done
  weigh ./*.out ./*.err 2>/dev/null
  [ -e room ] || { echo "there was no more room for answers in $place" >&2; exit 1; }
  size=0 n=0
  set --
  while [ -e "$n.a" ]; do
    [ $sum -le "$answer_limit" ] || size=$((size + $(cat "$n.out" "$n.err" 2>/dev/null | wc -c)))
    [ $size -le "$answer_limit" ] || break
    set -- "$@" "$n.a"
    if [ -e "$n.big" ]; then
      set -- "$@" "$n.big"
    elif [ -s "$n.rc" ]; then
      set -- "$@" "$n.err" "$n.out" "$n.rc"
    elif [ -e "$n.late" ]; then
      set -- "$@" "$n.late"
    fi
    n=$((n + 1))
  done
  { read -r t _ </proc/uptime; } 2>/dev/null
  echo "$magic $how ${t:-0}"
  [ $# -eq 0 ] || stat -c '%n %s' "$@" || exit 1
  echo
  [ $# -eq 0 ] || cat "$@"
}
main "$@"
