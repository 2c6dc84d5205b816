# shellcheck shell=sh
# What runs of the kit have on a node, a line each: processes, mounts, files, limits of ports, tables of the firewall,
# jobs of Slurm. Not what asks this.
own=$RACKPROOF_COMMAND
grep -lsz '^RACKPROOF_COMMAND=' /proc/[0-9]*/environ | while read -r environment; do
  grep -qszxF "RACKPROOF_COMMAND=$own" "$environment" && continue
  pid=${environment#/proc/}
  ps -o user:32=,stat=,args= -p "${pid%/environ}" | sed 's/^/marked process /'
done
ps -eo user:32=,stat=,comm=,args= | awk '
  $1 == "rackproof-bench" || / slurmstepd: \[/ || /(^|[ \/])(torch_)?(collectives|relay_node)\.py( |$)/ ||
    $3 ~ /^(fio|iperf3|ib_.*|mpirun|prterun|prted|orted|srun)$/ { if ($3 != "awk") print "process " $0 }'
cut -d ' ' -f 1-3 /proc/self/mounts | grep -v -e '^nsfs' -e '/run/user/' | sed 's/^/mount /'
for path in /run/rackproof-bench /run/rackproof-own-mount* /run/rackproof-join /run/rackproof-throttled \
  /sys/class/net/rp-* /tmp/* /var/tmp/* /dev/shm/*; do
  case $path in */systemd-private-*) continue ;; esac # of a service that was started again
  [ ! -e "$path" ] || echo "file $path"
done
find /mnt/*/rackproof-bench /srv/nfs/rackproof-bench -mindepth 1 2>/dev/null | sed 's/^/file /'
nft list tables | sed -n 's/^\(table inet rackproof\)_.*/\1/p'
tc qdisc show | grep -E '^qdisc [a-z]+ (727[0-2]|ffff):'
if [ "$(hostname)" = storage-01 ]; then timeout 60 squeue -h -o '%j %T' | sed 's/^/job /'; fi
exit 0
