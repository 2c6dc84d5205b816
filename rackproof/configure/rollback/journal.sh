# shellcheck shell=sh
# Saves the state of what a script will change, for a rollback. The format is described in journal.py.
# rp_open RUN KEEP, then one rp_* line for each item, then rp_close. Ends the script when something cannot be saved.
: "${rp_root?}"
rp_fail() {
  [ -z "$rp" ] || { rm -f -- "$rp/.new" "$rp/$rp_i"-*; rmdir -- "$rp"; } 2>/dev/null
  echo "$1 could not be saved for a rollback (is $rp_root full?): nothing was changed" >&2
  exit 1
}
rp_open() {
  rp='' rp_i=1 rp_k=0 rp_last=0 rp_stop='' rp_locks='?'
  umask 022
  mkdir -p -- "${rp_root%/*}" || rp_fail "$rp_root"  # also used by other parts of the kit
  umask 077
  mkdir -p -- "$rp_root" || rp_fail "$rp_root"
  for rp_d in "$rp_root"/[0-9]*."$1"; do [ ! -d "$rp_d" ] || rp=$rp_d; done
  if [ -z "$rp" ]; then
    for rp_d in "$rp_root"/[0-9]*.*; do [ ! -d "$rp_d" ] || { rp_last=${rp_d##*/}; rp_last=${rp_last%%.*}; }; done
    rp_last=${rp_last#"${rp_last%%[!0]*}"}
    rp=$rp_root/$(printf %06d $((${rp_last:-0} + 1))).$1
    mkdir -- "$rp" || rp_fail "$rp"
    set -- "$2" "$rp_root"/[0-9]*.*
    while [ $# -gt $(($1 + 1)) ]; do rp_d=$1; rm -rf -- "$2"; shift 2; set -- "$rp_d" "$@"; done
  fi
  while [ -e "$rp/$rp_i.part" ]; do rp_i=$((rp_i + 1)); done
  : >"$rp/.new" || rp_fail "$rp"
}
rp_line() {
  printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$@" >>"$rp/.new" || rp_fail "$9"
}
rp_parents() {
  rp_p=${1%/*}
  while [ "$rp_p" != "$rp_stop" ] && ! [ -e "$rp_p" ]; do
    rp_line directory absent - - - - - - "$rp_p"
    rp_p=${rp_p%/*}
  done
}
rp_about() {
  rp_a=$(stat -c '%a %U:%G' -- "$1") || rp_fail "$1"
  case $rp_a in *UNKNOWN*) rp_a=$(stat -c '%a %u:%g' -- "$1") || rp_fail "$1" ;; esac
  rp_mode=${rp_a% *} rp_owner=${rp_a#* }
}
rp_file() {
  rp_k=$((rp_k + 1)) rp_data=$rp_i-$rp_k rp_after=$2
  if [ -L "$1" ]; then
    { rp_to=$(readlink -- "$1") && printf %s "$rp_to" >"$rp/$rp_data"; } || rp_fail "$1"
    rp_kind='link'
  elif [ -e "$1" ]; then
    cat -- "$1" >"$rp/$rp_data" || rp_fail "$1"
    rp_kind='regular'
  else
    rp_line file absent - - - "$2" "$3" - "$1"
    rp_parents "$1"
    return
  fi
  rp_about "$1"
  rp_sum=$(sha256sum <"$rp/$rp_data") || rp_fail "$1"
  rp_sum=${rp_sum%% *}
  [ "$rp_after" != same ] || rp_after=$rp_sum
  rp_line file $rp_kind "$rp_mode" "$rp_owner" "$rp_sum" "$rp_after" "$3" "$rp_data" "$1"
}
rp_wrote() {
  rp_sum=-
  [ ! -e "$1" ] || rp_sum=$(sha256sum <"$1") || rp_fail "$1"
  rp_line wrote - - - - "${rp_sum%% *}" - - "$1"
}
rp_home() {
  rp_h=$(getent passwd "$1" | cut -d: -f6)
  # no such user yet: where useradd will create the home
  [ -n "$rp_h" ] || rp_h=$(useradd -D | sed -n 's/^HOME=//p')/$1
  printf %s "$rp_h"
}
rp_keys() {
  rp_stop=$(rp_home "$1")  # the home stays with its user
  [ ! -L "$rp_stop/.ssh" ] || rp_fail "$rp_stop/.ssh is a link: the keys of $1"
  rp_file "$rp_stop/.ssh/authorized_keys" later -
  rp_stop=
}
rp_directory() {
  if [ -d "$1" ]; then
    rp_about "$1"
    rp_line directory directory "$rp_mode" "$rp_owner" - - - - "$1"
  else
    rp_line directory absent - - - - - - "$1"
    rp_parents "$1"
  fi
}
rp_unit() {
  rp_line unit "$(systemctl is-enabled -- "$1" 2>/dev/null | head -n 1)" \
    "$(systemctl is-active -- "$1" 2>/dev/null | head -n 1)" - - - - - "$1"
}
rp_value() {
  rp_k=$((rp_k + 1))
  [ -e "$1" ] || return 0
  cat -- "$1" >"$rp/$rp_i-$rp_k" || rp_fail "$1"
  rp_line value - - - - "$2" - "$rp_i-$rp_k" "$1"
}
rp_hold() {
  rp_held=no rp_data=-
  if [ "$1" = rhel ]; then
    [ "$rp_locks" != '?' ] || rp_locks=$(dnf -q versionlock list 2>/dev/null) || rp_locks=
    rp_k=$((rp_k + 1)) rp_data=$rp_i-$rp_k
    printf '%s\n' "$rp_locks" | awk -v p="$2" '{ n = $0; sub(/-[0-9]+:.*/, "", n) } n == p' >"$rp/$rp_data" ||
      rp_fail "$2"
    [ ! -s "$rp/$rp_data" ] || rp_held=yes
  else
    ! apt-mark showhold 2>/dev/null | grep -qxF -- "$2" || rp_held=yes
  fi
  rp_line hold $rp_held - "$1" - - - "$rp_data" "$2"
}
rp_grubby() {
  rp_k=$((rp_k + 1))
  grubby --info=DEFAULT | sed -n 's/^args="\(.*\)"$/\1/p' | head -n 1 >"$rp/$rp_i-$rp_k" || rp_fail "kernel arguments"
  rp_line grubby - - - - - - "$rp_i-$rp_k" arguments
}
rp_kernel() {
  rp_d=$(grubby --default-kernel) || rp_fail "the default kernel"
  rp_line kernel - - - "$rp_d" "$1" - - default
}
rp_mark() {
  rp_line mark - - - - - - - "$1"
}
rp_close() {
  sync -- "$rp/.new" "$rp/$rp_i"-* 2>/dev/null || sync || rp_fail "$rp"
  mv -f -- "$rp/.new" "$rp/$rp_i.part" || rp_fail "$rp"
}
