# shellcheck shell=sh
# Identity and I/O counters of block devices, by name; of all NVMe and SCSI drives without a name.
[ "$#" != 0 ] || set -- /sys/block/nvme*n* /sys/block/sd*
echo "host $(uname -n) $(date +%s.%N)"
for path in "$@"; do
  name=${path##*/}
  [ -e "/sys/block/$name/stat" ] || continue
  identity=
  for file in device/serial device/wwid wwid; do
    [ -n "$identity" ] || identity=$(cat "/sys/block/$name/$file" 2>/dev/null)
  done
  echo "device $name $(cat "/sys/block/$name/stat")"
  echo " identity $identity"
done
echo 'end of devices'
