# shellcheck shell=sh
# What a heavy step may change on a node, in sections; few forks, since they take 30 ms each on emulated nodes.
# since: time of the last message of the kernel at the reading before, in seconds; empty for the first reading.
# gpus: 1 where GPUs are real. After state.sh.
: "${since?}" "${gpus?}"
echo 'rackproof load 1'
state
echo --
running
cat /proc/self/mounts
echo --
dmesg -r -S 2>&1 | awk -v since="$since" '
  { last = $0 }
  NR == 1 { print }
  NR > 1 && since != "" && match($0, /\[ *[0-9]+\.[0-9]+\]/) &&
    (substr($0, RSTART + 1, RLENGTH - 2) + 0 >= since + 0 || /Attached SCSI|usb-storage|uas$/) { print; shown = $0 }
  END { if (NR > 1 && last != shown) print last }'
echo --
running
set --
for port in /sys/class/net/*/device; do
  port=${port%/device}
  [ ! -e "$port/carrier" ] || set -- "$@" "$port/carrier_down_count" "$port/statistics/rx_crc_errors" \
    "$port/statistics/rx_frame_errors" "$port/statistics/tx_carrier_errors" "$port/statistics/rx_errors" \
    "$port/statistics/tx_errors" "$port/statistics/rx_missed_errors"
done
for name in symbol_error link_error_recovery link_downed local_link_integrity_errors port_rcv_errors \
  excessive_buffer_overrun_errors port_xmit_discards port_rcv_remote_physical_errors; do
  set -- "$@" /sys/class/infiniband/*/ports/*/counters/$name
done
set -- "$@" /sys/class/infiniband/*/ports/*/hw_counters/* /sys/devices/system/edac/mc/mc*/[cu]e_count \
  /sys/block/md*/md/degraded /sys/block/md*/md/raid_disks /sys/block/md*/md/array_state
[ "$#" = 0 ] || grep -sH '' "$@"
grep -sHv -e '^0$' -e ' 0$' /sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count \
  /sys/bus/pci/devices/*/aer_dev_*
set -- /sys/bus/pci/devices/*
echo "devices $#"
echo --
if command -v chronyc >/dev/null; then chronyc -c tracking 2>&1; else echo none; fi
echo --
for drive in /sys/class/nvme/nvme[0-9]*; do
  if [ -e "$drive/transport" ] && read -r transport <"$drive/transport" && [ "$transport" = pcie ]; then
    echo "drive ${drive##*/}"
    timeout 20 nvme smart-log -o json "/dev/${drive##*/}"
    echo "status $?"
  fi
done
echo 'end of smart logs'
echo --
running
if command -v slurmd >/dev/null; then pgrep -af '^slurmstepd: \['; fi
echo --
if [ "$gpus" = 1 ]; then timeout 60 nvidia-smi -q -x 2>&1; else echo none; fi
echo
echo --
echo 'end of load'
