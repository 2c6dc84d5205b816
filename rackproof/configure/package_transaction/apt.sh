# shellcheck shell=sh
# A transaction of apt and dpkg. A package is NAME, NAME=VERSION, NAME=BEGINNING* or the path of a file.
# shellcheck disable=SC2034

rp_start() {
  rp_wait_s=$1 rp_output='' rp_lists='' rp_updated='' rp_held=''
  rp_further='on Debian contrib, non-free and non-free-firmware, on Ubuntu universe and restricted'
  export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 NEEDRESTART_MODE=l
  # Maintainer scripts would start services before their configuration is there, and make systemd read all its units
  # a dozen times. What is declared is started by its own operation.
  export SYSTEMD_OFFLINE=1
}
rp_apt() {
  # Configuration files that the kit wrote already are kept.
  apt-get -q -y -o "DPkg::Lock::Timeout=$rp_wait_s" -o Dpkg::Options::=--force-confdef \
    -o Dpkg::Options::=--force-confold --no-install-recommends "$@"
}
rp_missing_names() {
  sed -nE -e 's/^E: Unable to locate package ([^ ]+).*/\1/p' \
    -e "s/^E: Package '([^']+)' has no installation candidate.*/\1/p" \
    -e "s/^E: Couldn't find any package by [a-z]+ '([^']+)'.*/\1/p" \
    -e "s/^E: Version '([^']+)' for '([^']+)' was not found.*/\2=\1/p" \
    -e 's/^.*Depends: ([^ ]+) .*but it is not installable.*/\1/p'
}
rp_cause() {
  grep -E '^E:|Depends:|Conflicts:|Breaks:' | head -n 4
}
rp_name() {
  case $1 in /*) dpkg-deb -f "$1" Package || rp_fail "$1: not a package of Debian's" ;; *) echo "${1%%=*}" ;; esac
}
rp_installed() {
  for rp_i in $1; do
    dpkg-query -W -f='${Package} ${Version}\n' -- "${rp_i%%:*}" 2>/dev/null | head -n 1
  done | awk '{ printf "%s%s (installed: %s)", (NR > 1 ? ", " : ""), $1, $2 }'
}
rp_broken() {
  dpkg-query -W -f='${db:Status-Status} ${Package}\n' 2>/dev/null |
    sed -nE '/^(installed|config-files|not-installed) /!s/^[^ ]* //p' | tr '\n' ' '
}
rp_configure() {
  dpkg --configure -a --force-confdef --force-confold >&2
}
rp_repair() {
  [ -n "$(rp_broken)" ] || return 0
  rp_configure || :
  [ -z "$(rp_broken)" ] || rp_apt -f install --no-remove >&2 || :
  rp_left=$(rp_broken)
  [ -z "$rp_left" ] || rp_fail "half-configured, and cannot be repaired: ${rp_left% }; dpkg --configure -a shows why"
}
rp_update() {
  rp_updated=1
  rp_lists=$(apt-get -q update 2>&1) || { printf '%s\n' "$rp_lists" >&2; return 1; }
}
rp_refresh() {
  rp_update || { rp_output=$rp_lists; rp_refused "apt-get update failed"; }
}
rp_candidates() {
  # NAME=VERSION of everything that repositories have of these, the newest first, and of what is installed
  rp_names=
  for rp_s; do
    case $rp_s in /*) ;; *=*) rp_names="$rp_names ${rp_s%%=*}" ;; esac
  done
  [ -n "$rp_names" ] || return 0
  # shellcheck disable=SC2086
  apt-cache madison -- $rp_names 2>/dev/null | awk -F '|' '{ gsub(/ /, ""); print $1 "=" $2 }'
  # shellcheck disable=SC2086
  dpkg-query -W -f='${db:Status-Status} ${Package}=${Version}\n' -- $rp_names 2>/dev/null | sed -n 's/^installed //p'
}
rp_choose() {
  printf '%s\n' "$rp_offered" | while IFS= read -r rp_c; do
    [ "${rp_c%%=*}" != "${1%%=*}" ] || ! rp_same "${rp_c#*=}" "${1#*=}" || { echo "$rp_c"; break; }
  done
}
rp_unavailable() {
  rp_offered=$(rp_candidates "$@")
  for rp_s; do
    case $rp_s in
    /*) ;;
    *=*) [ -n "$(rp_choose "$rp_s")" ] || echo "E: Version '${rp_s#*=}' for '${rp_s%%=*}' was not found" ;;
    esac
  done
}
rp_section() {
  printf '%s\n' "$rp_output" | awk -v title="$1" '/^[^ ]/ { on = index($0, title) } on && /^ / { $1 = $1; print }' | tr '\n*' '  '
}
rp_refuse_plan() {
  # What apt itself refuses, with the names of its own list
  # shellcheck disable=SC2046
  case $rp_output in
  *'remove is disabled'*) rp_refuse_removal $(rp_section REMOVED) ;;
  *'without --allow-downgrades'*) rp_refuse_downgrade $(rp_section DOWNGRADED) ;;
  *'without --allow-change-held-packages'*)
    rp_fail "installing $rp_specs would change held packages: $(rp_section 'held packages');" \
      "apt-mark unhold them, or declare versions that leave them alone"
    ;;
  esac
}
rp_attempt() {
  set -- install -- "$@"
  case $rp_downgrades in ?*) set -- --allow-downgrades "$@" ;; esac
  case $rp_removals in '') set -- --no-remove "$@" ;; esac
  case $rp_removals$rp_downgrades in
  '' | '*' | '**') ;;
  *)
    rp_output=$(rp_apt -s --allow-change-held-packages "$@" 2>&1) || return 1
    # shellcheck disable=SC2046
    rp_refuse_removal $(printf '%s\n' "$rp_output" | sed -n 's/^Remv \([^ ]*\).*/\1/p')
    # shellcheck disable=SC2046
    [ -z "$rp_downgrades" ] || rp_refuse_downgrade $(rp_section DOWNGRADED)
    ;;
  esac
  rp_try rp_apt "$@"
}
rp_hold_again() {
  # shellcheck disable=SC2086
  [ -z "$rp_held" ] || apt-mark hold -- $rp_held >/dev/null
  rp_held=
}
rp_take_off_holds() {
  rp_holds=$(apt-mark showhold 2>/dev/null) || rp_holds=
  [ -n "$rp_holds" ] || return 0
  for rp_s; do
    rp_n=$(rp_name "$rp_s")
    for rp_h in $rp_holds; do
      [ "${rp_h%%:*}" != "$rp_n" ] || rp_held="$rp_held $rp_h"
    done
  done
  [ -n "$rp_held" ] || return 0
  rp_keep_holds
  # shellcheck disable=SC2086
  apt-mark unhold -- $rp_held >/dev/null
}
rp_install() {
  # Patterns of what may be removed and of what may become older, then the packages
  rp_removals=$1 rp_downgrades=$2
  shift 2
  rp_specs="$*"
  rp_output=$(rp_unavailable "$@")
  if [ -n "$rp_output" ] && [ -z "$rp_updated" ]; then
    rp_update || :
    rp_output=$(rp_unavailable "$@")
  fi
  [ -z "$rp_output" ] || rp_refused ''
  rp_offered=$(rp_candidates "$@")
  for rp_s; do
    shift
    case $rp_s in /*) ;; *=*) rp_s=$(rp_choose "$rp_s") ;; esac
    set -- "$@" "$rp_s"
  done
  rp_take_off_holds "$@"
  if ! rp_attempt "$@"; then
    rp_refuse_plan
    # What may help: an interrupted installation is finished, lists that name files which are gone are fetched again.
    { rp_configure && { [ -n "$rp_updated" ] || rp_update; } && rp_attempt "$@"; } || {
      rp_refuse_plan
      rp_refused "apt-get could not install $rp_specs, the next run repairs what is half-configured"
    }
  fi
  rp_hold_again
}
rp_read_back() {
  rp_wrong=
  for rp_s; do
    rp_n=$(rp_name "$rp_s")
    case $rp_s in
    /*) rp_v=$(dpkg-deb -f "$rp_s" Version) ;;
    *=*) rp_v=${rp_s#*=} ;;
    *) rp_v='*' ;;
    esac
    rp_actual=$(dpkg-query -W -f='${db:Status-Status} ${Version}\n' -- "$rp_n" 2>/dev/null | sort -u)
    case $rp_actual in
    'installed '*) ! rp_same "${rp_actual#installed }" "$rp_v" || continue ;;
    esac
    rp_wrong="$rp_wrong, $rp_s (actual: ${rp_actual:-not installed})"
  done
  [ -z "$rp_wrong" ] || rp_fail "asked for and not there afterwards: ${rp_wrong#, }"
}
rp_hold() {
  apt-mark hold -- "$@" >/dev/null
  rp_holds=$(apt-mark showhold | sed 's/:.*//')
  rp_wrong=
  for rp_s; do
    printf '%s\n' "$rp_holds" | grep -qxF -- "$rp_s" || rp_wrong="$rp_wrong $rp_s"
  done
  [ -z "$rp_wrong" ] || rp_fail "held, and not in the list of holds afterwards:$rp_wrong"
}
