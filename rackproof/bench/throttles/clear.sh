# shellcheck shell=sh
# Removes the kit's limits of ports and drives, also those that a killed run has left. The device rp-PORT is made first
# and removed last, and so is the list of units.
unthrottle() {
  for device in /sys/class/net/rp-*; do
    [ -e "$device" ] || continue
    port=${device##*/rp-}
    tc qdisc del dev "$port" ingress 2>/dev/null
    case $(tc qdisc show dev "$port" root) in *" 7271: root"*) tc qdisc del dev "$port" root ;; esac
    ip link del "rp-$port"
  done
  [ -e /run/rackproof-throttled ] || return 0
  while read -r unit; do
    [ "$unit" != rackproof.slice ] || while read -r thread; do
      echo "$thread" >/sys/fs/cgroup/cgroup.procs
    done </sys/fs/cgroup/rackproof.slice/cgroup.procs
    systemctl set-property --runtime "$unit" IOReadBandwidthMax= IOReadIOPSMax=
    rm -f "/run/systemd/system.control/$unit.d/50-IOReadBandwidthMax.conf" \
      "/run/systemd/system.control/$unit.d/50-IOReadIOPSMax.conf"
    [ "$unit" != rackproof.slice ] || systemctl stop rackproof.slice
  done </run/rackproof-throttled
  rm -f /run/rackproof-throttled
}
unthrottle
