# shellcheck shell=sh
# PCI path, NUMA node and its processors of the network interfaces "$@", the PCI paths of NVIDIA's GPUs, where numactl
# is, and whether the folder $perftest of the deploy's perftest with CUDA exists.
: "${perftest?}"
for port; do
  device=/sys/class/net/$port/device
  readlink -e "$device" || echo none
  cat "$device/numa_node" 2>/dev/null || echo -1
  cat "$device/local_cpulist" 2>/dev/null || echo
done
for device in /sys/bus/pci/devices/*; do
  case "$(cat "$device/vendor"):$(cat "$device/class")" in
    0x10de:0x030[02]*) readlink -e "$device" ;;
  esac
done
command -v numactl || echo no numactl
if [ -d "$perftest" ]; then echo built perftest; else echo no built perftest; fi
echo end
