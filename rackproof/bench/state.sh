# shellcheck shell=sh
# running: threads that are ready to run. state: who a node is, and what its processors did.
LC_ALL=C
export LC_ALL
running() {
  read -r _ _ _ threads _ </proc/loadavg && echo "running ${threads%%/*}"
}
state() {
  running
  read -r boot </proc/sys/kernel/random/boot_id && echo "boot $boot"
  read -r online </sys/devices/system/cpu/online && echo "online $online"
  read -r cpu </proc/stat && echo "$cpu"
  for resource in cpu io memory; do
    [ ! -r "/proc/pressure/$resource" ] || { read -r some <"/proc/pressure/$resource" && echo "pressure $resource $some"; } 2>/dev/null
  done
  read -r up _ </proc/uptime && echo "uptime $up"
  date '+clock %s.%N'
  read -r up _ </proc/uptime && echo "uptime $up"
}
