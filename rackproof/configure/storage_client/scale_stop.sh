# shellcheck shell=sh
# Stops Storage Scale on a node without users. mmshutdown ends the daemon "anyway" when a file system stays in use (IBM,
# mmshutdown command), and jobs then read and write errors. `busy` is of let_go.sh.
: "${node?}" "${bin?}" "${limit_s?}"
in_use() {
  echo "Storage Scale was not stopped: $1; drain the node, let it become idle, and run again" >&2
  exit 1
}
if grep -qsx slurmd /proc/[0-9]*/comm; then
  state=$(timeout "$limit_s" scontrol --oneliner show node "$node" 2>/dev/null | sed -n 's/.* State=\([^ ]*\).*/\1/p')
  case $state in
    *ALLOC* | *MIXED* | *COMPLETING*) in_use "Slurm's jobs are on this node ($state)" ;;
    *DRAIN* | *DOWN*) ;;
    *) in_use "Slurm may start jobs on this node (state: ${state:-unknown})" ;;
  esac
fi
mounts=$(awk '$3 == "gpfs" { print $2 }' /proc/self/mounts)
for mount in $mounts; do
  who=$(busy "$mount")
  [ -z "$who" ] || in_use "$mount is in use by$who"
done
[ -z "$mounts" ] || timeout 120 "$bin/mmumount" all -N "$node"
timeout 120 "$bin/mmshutdown" -N "$node"
