# shellcheck shell=sh
# Defines why_not UNIT: its state and messages; the last line is what its mount program printed last.
why_not() {
  systemctl --no-pager --lines=8 status -- "$1"
  reason=$(journalctl -q --no-pager --lines=1 --output=cat --unit="$1" --identifier=mount)
  [ -z "$reason" ] || printf '%s: %s\n' "$1" "$reason"
}
