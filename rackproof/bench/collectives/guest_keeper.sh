# shellcheck shell=sh
# Starts the domain, which takes the GPUs from the node, and shuts it down when its input ends. After guest_off.sh.
# start: command, start_s: its time. The others: as there.
: "${start?}" "${start_s?}" "${kept?}"
for unit in nvidia-persistenced rackproof-gpu nvidia-dcgm dcgm-exporter; do
  ! systemctl is-active --quiet "$unit" || echo "$unit" >>"$kept"
done
# The driver lets a GPU go when no program has it open any longer.
for unit in dcgm-exporter nvidia-dcgm nvidia-persistenced; do
  ! grep -qsx "$unit" "$kept" || systemctl stop "$unit"
done
users=$(find /proc/[0-9]*/fd -maxdepth 1 -type l -lname '*/dev/nvidia[0-9]*' 2>/dev/null | cut -d/ -f3 | sort -un |
  while read -r p; do read -r c <"/proc/$p/comm" && printf ' %s' "$c ($p)"; done)
if [ -n "$users" ]; then
  echo "programs have its GPUs open:$users" >&2
  back >/dev/null 2>&1
elif complaint=$(timeout -k 5 "$start_s" sh -c "$start" 2>&1); then
  echo rackproof-guest
  cat >/dev/null
  off >/dev/null 2>&1
elif [ $? = 124 ]; then
  echo "libvirt has not taken the GPUs from the node within $start_s s: see virsh domstate and dmesg" >&2
  how=none
  until=$(($(date +%s) + 600)) # libvirt may still start it
  while [ "$how" = none ] && [ "$(date +%s)" -lt "$until" ]; do
    off >/dev/null 2>&1
    sleep 5
  done
else # also where someone else has started it
  printf '%s\n' "$complaint" | sed '/./!d; s/^error: //' | tr '\n' ' ' >&2
  back >/dev/null 2>&1
fi
