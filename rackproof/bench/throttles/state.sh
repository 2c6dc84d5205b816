# shellcheck shell=sh
# Prints the limits of ports and drives as the kernel has them. Positional parameters: ports, a port:TCP_PORT for each
# connection from there, "--", then a storage and its device each. nfsd: 1 where threads of the NFS server read the drives.
: "${nfsd?}"
echo 'rackproof throttles 1'
while [ "$#" -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    *:*)
      echo "connections $1"
      tc -j qdisc show dev "${1%:*}"
      echo
      tc filter show dev "${1%:*}" parent 7271: 2>/dev/null | grep -cw -e 'classid 7271:3' -e "src_port ${1##*:}"
      ;;
    *)
      echo "port $1"
      tc -j qdisc show dev "$1"
      echo
      if [ -e "/sys/class/net/rp-$1" ]; then tc -j qdisc show dev "rp-$1" root; else echo '[]'; fi
      echo
      tc filter show dev "$1" ingress 2>/dev/null | grep -c "Egress Redirect to device rp-$1"
      ;;
  esac
  shift
done
shift
while [ "$#" -gt 0 ]; do
  device=$(readlink -f "$2")
  read -r number <"/sys/class/block/${device##*/}/dev" || exit 1
  echo "drive $1"
  for unit in user.slice system.slice rackproof.slice; do
    limits=$(sed -n "s/^$number //p" "/sys/fs/cgroup/$unit/io.max" 2>/dev/null)
    echo "$unit ${limits:-none}"
  done
  shift 2
done
if [ "$nfsd" = 1 ]; then
  for thread in $(pgrep -x nfsd); do cat "/proc/$thread/cgroup"; done | sed 's/^/thread /'
fi
echo end
