# shellcheck shell=sh
# A transaction of dnf 4 and rpm. A package is NAME, NAME=VERSION, NAME=BEGINNING* or the path of a file.
# shellcheck disable=SC2034

rp_start() {
  rp_output='' rp_lists='' rp_held='' rp_further='crb or EPEL'
  export LC_ALL=C.UTF-8 SYSTEMD_OFFLINE=1
}
rp_dnf() {
  dnf --setopt=install_weak_deps=False "$@"
}
rp_missing_names() {
  sed -nE -e 's/^No match for argument: (.+)/\1/p' -e 's/^.*Unable to find a match: (.+)/\1/p' \
    -e 's/^.*nothing provides ([^ ]+) .*needed by.*/\1/p'
}
rp_cause() {
  grep . | tail -n 2
}
rp_name() {
  case $1 in /*) rpm -qp --qf '%{NAME}\n' -- "$1" || rp_fail "$1: not a package of rpm's" ;; *) echo "${1%%=*}" ;; esac
}
rp_installed() {
  echo "${1% }"
}
rp_repair() {
  rp_why=$(rpm -q rpm 2>&1 >/dev/null | grep '^error:') || return 0
  rp_fail "the database of rpm cannot be read: $rp_why; rpm --rebuilddb"
}
rp_refresh() {
  dnf -q clean expire-cache
}
rp_section() {
  printf '%s\n' "$rp_output" | awk -v title="$1" '
    index($0, title) == 1 { on = 1; next } /^[^ ]/ || /^$/ { on = 0 } on && /^ [^ ]/ { print $1 }' | tr '\n' ' '
}
rp_attempt() {
  set -- install -- "$@"
  case $rp_removals in ?*) set -- --allowerasing "$@" ;; esac
  # --assumeno ends with 1 after showing the transaction, and with 0 when there is nothing to do.
  rp_output=$(rp_dnf --assumeno "$@" 2>&1) || case $rp_output in *'Operation aborted'*) ;; *) return 1 ;; esac
  # shellcheck disable=SC2046
  rp_refuse_removal $(rp_section Removing)
  # shellcheck disable=SC2046
  rp_refuse_downgrade $(rp_section Downgrading)
  rp_try rp_dnf -q -y "$@"
}
rp_hold_again() {
  for rp_h in $rp_held; do
    dnf -q versionlock add --raw "$rp_h" >/dev/null
  done
  rp_held=
}
rp_locks_of() {
  # Entries of one package among all: what follows the name is an epoch and a version, libnccl is not libnccl-devel.
  for rp_h in $rp_holds; do
    rp_v=${rp_h#"$1"-}
    [ "$rp_v" != "$rp_h" ] || continue
    case $rp_v in [!0-9]* | *-*:*) ;; *) printf '%s ' "$rp_h" ;; esac
  done
}
rp_take_off_holds() {
  # dnf takes no other version of what is locked, not even of a package that is asked for by name.
  rp_holds=$(dnf -q versionlock list 2>/dev/null) || rp_holds=
  [ -n "$rp_holds" ] || return 0
  rp_names=
  for rp_s; do
    rp_n=$(rp_name "$rp_s")
    rp_v=$(rp_locks_of "$rp_n")
    [ -z "$rp_v" ] || rp_names="$rp_names $rp_n" rp_held="$rp_held$rp_v"
  done
  [ -n "$rp_held" ] || return 0
  rp_keep_holds
  # shellcheck disable=SC2086
  dnf -q versionlock delete -- $rp_names >/dev/null
}
rp_install() {
  # Patterns of what may be removed and of what may become older, then the packages
  rp_removals=$1 rp_downgrades=$2
  shift 2
  rp_take_off_holds "$@"
  for rp_s; do
    shift
    case $rp_s in /*) ;; *=*) rp_s=${rp_s%%=*}-${rp_s#*=} ;; esac
    set -- "$@" "$rp_s"
  done
  rp_specs="$*"
  rp_attempt "$@" || { rp_refresh && rp_attempt "$@"; } || rp_refused "dnf could not install $rp_specs"
  rp_hold_again
}
rp_read_back() {
  rp_wrong=
  rp_r='%{VERSION}-%{RELEASE}'
  for rp_s; do
    rp_n=$(rp_name "$rp_s")
    case $rp_s in
    /*) rp_v=$(rpm -qp --qf "%{EPOCHNUM}:$rp_r" -- "$rp_s") ;;
    *=*) rp_v=${rp_s#*=} ;;
    *) rp_v='*' ;;
    esac
    rp_actual=$(rpm -q --qf "%{EPOCHNUM}:$rp_r\n%{EPOCHNUM}:$rp_r.%{ARCH}\n%{EPOCHNUM}:%{VERSION}\n" -- "$rp_n" 2>/dev/null) || rp_actual=
    for rp_c in $rp_actual; do
      ! rp_same "$rp_c" "$rp_v" || continue 2
    done
    rp_wrong="$rp_wrong, $rp_s (actual: $(echo "${rp_actual:-not installed}" | head -n 1))"
  done
  [ -z "$rp_wrong" ] || rp_fail "asked for and not there afterwards: ${rp_wrong#, }"
}
rp_hold() {
  dnf -q versionlock list >/dev/null 2>&1 || rp_dnf -q -y install python3-dnf-plugin-versionlock >/dev/null 2>&1 || :
  dnf -q versionlock list >/dev/null 2>&1 || rp_fail "dnf has no versionlock; install python3-dnf-plugin-versionlock"
  rp_wrong=
  for rp_s; do
    # A lock on another version of the same package would win.
    dnf -q versionlock delete -- "$rp_s" >/dev/null 2>&1 || :
    rp_v=$(rp_lock_entries "$rp_s") || { rp_wrong="$rp_wrong $rp_s"; continue; }
    for rp_c in $rp_v; do dnf -q versionlock add --raw "$rp_c" >/dev/null; done
  done
  rp_holds=$(dnf -q versionlock list)
  for rp_s; do
    for rp_c in $(rp_lock_entries "$rp_s" 2>/dev/null || :); do
      printf '%s\n' "$rp_holds" | grep -qxF -- "$rp_c" || rp_wrong="$rp_wrong $rp_s"
    done
  done
  [ -z "$rp_wrong" ] || rp_fail "held, and not in the list of holds afterwards:$rp_wrong"
}
rp_lock_entries() {
  rpm -q --qf '%{NAME}-%{EPOCHNUM}:%{VERSION}-%{RELEASE}.*\n' -- "$1"
}
