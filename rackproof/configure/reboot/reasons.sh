# shellcheck shell=sh
# Prints boot id, kernels, and the distribution's reasons for a reboot.
export LC_ALL=C
read -r id </proc/sys/kernel/random/boot_id
echo "boot $id"
echo "kernel $(uname -r)"
for f in /boot/vmlinuz-*; do [ ! -e "$f" ] || echo "installed ${f#/boot/vmlinuz-}"; done
[ ! -e /run/reboot-required ] || echo required
[ ! -e /run/reboot-required.pkgs ] || sort -u /run/reboot-required.pkgs | sed 's/^/package /'
# Exit status 1: yes. It reads every package's date, which takes seconds.
if command -v needs-restarting >/dev/null; then
  out=$(timeout 120 needs-restarting -r 2>/dev/null)
  case $? in
    0) echo current ;;
    1) echo "replaced $(echo "$out" | sed -n 's/^ *\* *//p' | tr '\n' ' ')" ;;
    *) echo unknown needs-restarting ;;
  esac
fi
