# shellcheck shell=sh
# Devices and their addresses; default routes; and both ends of every ssh session, with the device that answers leave by.
: rackproof-carriers
export LC_ALL=C
ip -j address show && echo -- &&
  ip -j route show default && echo -- &&
  { ip -j -6 route show default 2>/dev/null || { [ ! -e /proc/net/if_inet6 ] && echo '[]'; }; } && echo -- &&
  sockets=$(ss -tnpH state established) || exit 1
{
  printf '%s\n' "$sockets" | awk '/"sshd/ { print $3, $4 }' | sed 's/:[0-9]* / /; s/:[0-9]*$//; s/[][]//g; s/::ffff://g'
  # Without root's rights ss names no process; with sudo the variable is not there.
  [ -z "${SSH_CONNECTION-}" ] || echo "$SSH_CONNECTION" | awk '{ print $3, $1 }'
} | sort -u | while read -r own peer; do
  egress=$(ip -o route get "$peer" from "$own" 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p')
  echo "$own $peer ${egress:--}"
done
for d in /sys/class/net/*/device/driver; do
  [ ! -e "$d" ] || { n=${d%/device/driver}; l=$(readlink "$d"); echo "driver ${n##*/} ${l##*/}"; }
done
