# shellcheck shell=sh
# What a transaction may change, and why one failed: one line on stderr with the cause and what to do.
# rp_removals, rp_downgrades, rp_specs, rp_lists and rp_further come from the file of the package manager.
# shellcheck disable=SC2154

rp_fail() {
  printf '%s\n' "$*" | tr -s '\n ' ' ' | sed 's/ *$//' >&2
  echo >&2
  exit 1
}
rp_room() {
  for rp_need; do
    rp_free=$(df -Pm -- "${rp_need%%=*}" 2>/dev/null | awk 'NR == 2 { print $4 }')
    case $rp_free in
    '' | *[!0-9]*)
      rp_fail "${rp_need%%=*}: free space unknown (df gives no answer), ${rp_need#*=} MiB wanted before packages are" \
        "installed; look at df ${rp_need%%=*}"
      ;;
    esac
    [ "$rp_free" -ge "${rp_need#*=}" ] ||
      rp_fail "${rp_need%%=*}: $rp_free MiB free, ${rp_need#*=} wanted before packages are installed; make room" \
        "(apt-get clean, dnf clean all, old kernels), or lower versions.free_mib"
  done
}
rp_try() {
  rp_output=$("$@" 2>&1) || return 1
  [ -z "$rp_output" ] || printf '%s\n' "$rp_output"
}
rp_not_allowed() {
  # $1: patterns; prints the other arguments that match none of them
  set -f
  rp_patterns=$1
  shift
  for rp_name; do
    for rp_pattern in $rp_patterns; do
      # shellcheck disable=SC2254
      case $rp_name in $rp_pattern) continue 2 ;; esac
    done
    printf '%s ' "$rp_name"
  done
}
rp_same() {
  # A version is the wanted one: with its epoch where that is given, and up to a final *.
  # shellcheck disable=SC2254
  case $1 in $2) return 0 ;; esac
  case $2 in *:*) return 1 ;; esac
  # shellcheck disable=SC2254
  case ${1#*:} in $2) return 0 ;; esac
  return 1
}
rp_refuse_removal() {
  rp_unwanted=$(rp_not_allowed "$rp_removals" "$@")
  [ -z "$rp_unwanted" ] ||
    rp_fail "installing $rp_specs would remove ${rp_unwanted% }; remove them first, or set versions.allow_removal"
}
rp_refuse_downgrade() {
  rp_unwanted=$(rp_not_allowed "$rp_downgrades" "$@")
  [ -z "$rp_unwanted" ] ||
    rp_fail "newer than declared: $(rp_installed "$rp_unwanted"); set versions.allow_downgrade, or declare what is installed"
}
rp_first_line() {
  grep -E "$1" | sed -n '1s/^[ -]*//p'
}
rp_refused() {
  # Ends the transaction. Errors of the lists' update count only where packages are missing: a broken foreign
  # repository explains nothing else.
  printf '%s\n' "$rp_output" >&2
  case $rp_output in
  *'No space left on device'* | *'enough free space'* | *'more space needed on'* | *'more space on the'*)
    rp_fail "a file system of this node is full:" \
      "$(df -Pm /usr /var /boot 2>/dev/null | awk 'NR > 1 && !seen[$6]++ { printf "%s %s MiB free; ", $6, $4 }')" \
      "make room and run again"
    ;;
  esac
  rp_absent=$(printf '%s\n' "$rp_output" | rp_missing_names | tr ' ' '\n' | sort -u | tr '\n' ' ')
  rp_bad=$(printf '%s\n' "$rp_output" ${rp_absent:+"$rp_lists"} | rp_first_line 'NO_PUBKEY|BADSIG|EXPKEYSIG|REVKEYSIG|KEYEXPIRED|is not signed|Missing key|Public key|GPG check FAILED|not correct for this package')
  rp_gone=$(printf '%s\n' "$rp_output" ${rp_absent:+"$rp_lists"} | rp_first_line 'Failed to fetch|does not have a Release file|no longer has a Release file|Could not resolve|Failed to download metadata|Cannot download|Curl error|Status code: [45]')
  rp_why=
  [ -z "$rp_absent" ] || rp_why="in none of the repositories of this node: ${rp_absent% }"
  [ -z "$rp_bad" ] || rp_fail "${rp_why:+$rp_why; }a repository is not signed with a key that this node trusts: $rp_bad;" \
    "compare the new key's fingerprint with what its owner publishes, then give it in the place of the old one"
  [ -z "$rp_why" ] || rp_fail "$rp_why${rp_gone:+ ($rp_gone)}; put them on the mirror (rackproof mirror list), declare" \
    "versions that it has, or enable the repository that has them ($rp_further)"
  [ -z "$rp_gone" ] ||
    rp_fail "a repository cannot be read: $rp_gone; does this node reach it, and has it all that its index names?"
  rp_why=$(printf '%s\n' "$rp_output" | rp_cause) || :
  rp_fail "$1${rp_why:+: $rp_why}"
}
rp_keep_holds() {
  # Holds that were taken off are put back however the transaction ends.
  trap rp_hold_again EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
}
rp_finish() {
  trap - EXIT HUP INT TERM
  unset SYSTEMD_OFFLINE
  systemctl daemon-reload
}
