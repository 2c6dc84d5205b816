# shellcheck shell=sh
# Keeps limits of the ports and drives of a virtual machine while its input is open. Each line of input replaces them:
# port:INTERFACE:BITS_PER_S, connections:INTERFACE:TCP_PORT:BITS_PER_S (of each that this machine serves),
# drive:DEVICE:BYTES_PER_S:READS_PER_S (0: none) and nfsd (its threads read, too), with blanks between. Refuses hardware.
# After clear.sh.
refuse() {
  echo "$*" >&2
  exit 1
}
virtual=$(systemd-detect-virt --vm) || virtual=none
read -r vendor </sys/class/dmi/id/sys_vendor || vendor=unknown
case $virtual:$vendor in
  kvm:QEMU | qemu:QEMU) ;;
  *) refuse "limits are for virtual machines of QEMU, this is $vendor ($virtual)" ;;
esac

queue() { # DEVICE BITS_PER_S PARENT
  # shellcheck disable=SC2086 # two words
  tc qdisc add dev "$1" $3 handle 7270: tbf rate "${2}bit" burst $((32768 + $2 / 800)) limit 1000000
}

class() { # INTERFACE CLASS PROTOCOL WHICH PORT
  for protocol in ip ipv6; do
    tc filter add dev "$1" parent 7271: protocol "$protocol" flower ip_proto "$3" "$4" "$5" classid "7271:$2" || return
  done
}

# RoCE waits at the receiving port alone: a packet of Soft-RoCE that waits to be sent when its queue pair ends is a panic
# of the kernel (rxe_sched_task; seen in Linux 6.12).
sends() { # INTERFACE
  tc qdisc add dev "$1" root handle 7271: prio bands 3 priomap 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 &&
    class "$1" 1 udp dst_port 4791
}

emulated() { # INTERFACE
  case $(readlink -f "/sys/class/net/$1/device/driver") in
    */virtio_net) ;;
    *) refuse "$1 is no emulated port" ;;
  esac
  case $(tc qdisc show dev "$1" root) in
    *" 0: root"* | *noqueue*) ;;
    *) refuse "$1 has a queue that someone else has set: $(tc qdisc show dev "$1" root | head -n 1)" ;;
  esac
  for module in "ifb numifbs=0" sch_tbf sch_fq sch_prio cls_flower cls_matchall act_mirred; do
    # shellcheck disable=SC2086 # with its parameter
    modprobe $module || exit 1
  done
  read -r mtu <"/sys/class/net/$1/mtu"
  ip link add "rp-$1" mtu "$mtu" type ifb || exit 1
}

port() { # INTERFACE BITS_PER_S
  emulated "$1"
  ip link set dev "rp-$1" up && queue "rp-$1" "$2" root &&
    tc qdisc add dev "$1" handle ffff: ingress &&
    tc filter add dev "$1" parent ffff: protocol all matchall action mirred egress redirect dev "rp-$1" &&
    sends "$1" && queue "$1" "$2" "parent 7271:2" || exit 1
}

connections() { # INTERFACE TCP_PORT BITS_PER_S
  emulated "$1"
  sends "$1" && class "$1" 3 tcp src_port "$2" &&
    tc qdisc add dev "$1" parent 7271:3 handle 7272: fq maxrate "${3}bit" || exit 1
}

drive() { # DEVICE BYTES_PER_S READS_PER_S
  device=$(readlink -f "$1")
  read -r model <"/sys/class/block/${device##*/}/device/model" || model=unknown
  case $model in QEMU*) ;; *) refuse "$device is no emulated drive: $model" ;; esac
  for unit in $units; do
    echo "$unit" >>/run/rackproof-throttled
    systemctl start "$unit" || exit 1
    [ "$2" = 0 ] || systemctl set-property --runtime "$unit" "IOReadBandwidthMax=$device $2" || exit 1
    [ "$3" = 0 ] || systemctl set-property --runtime "$unit" "IOReadIOPSMax=$device $3" || exit 1
    [ "$unit" != rackproof.slice ] || for thread in $(pgrep -x nfsd); do
      echo "$thread" >/sys/fs/cgroup/rackproof.slice/cgroup.procs || exit 1
    done
  done
}

trap 'trap "" HUP INT TERM; unthrottle' EXIT
trap 'exit 1' HUP INT TERM
while read -r line; do
  unthrottle
  units="user.slice system.slice"
  case " $line " in *" nfsd "*) units="$units rackproof.slice" ;; esac
  for word in $line; do
    kind=${word%%:*} rest=${word#*:}
    most=${rest%:*} last=${rest##*:}
    case $kind in
      port) port "$most" "$last" ;;
      connections) connections "${most%:*}" "${most##*:}" "$last" ;;
      drive) drive "${most%:*}" "${most##*:}" "$last" ;;
    esac
  done
  echo rackproof-throttles
done
