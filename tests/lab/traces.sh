# shellcheck shell=sh
# What runs of the kit have on a node, a line each: processes, mounts, files, jobs of Slurm. Not what asks this.
own=$RACKPROOF_COMMAND
for environment in $(grep -lsz '^RACKPROOF_COMMAND=' /proc/[0-9]*/environ); do
  grep -qszxF "RACKPROOF_COMMAND=$own" "$environment" && continue
  pid=${environment#/proc/}
  ps -o user:32=,stat=,args= -p "${pid%/environ}" | sed 's/^/marked process /'
done
ps -eo user:32=,stat=,args= | grep -E '^rackproof-bench |(^| |/)(fio|iperf3|ib_[a-z_]+|mpirun|prterun|prted|orted|srun|collectives\.py|torch_collectives\.py|relay_node\.py)( |$)|slurmstepd: \[' |
  grep -v 'grep -E' | sed 's/^/process /'
cut -d ' ' -f 1-3 /proc/self/mounts | grep -v -e '^nsfs' -e '/run/user/' | sed 's/^/mount /'
for path in /run/rackproof-bench /tmp/* /var/tmp/* /dev/shm/*; do
  [ ! -e "$path" ] || echo "file $path"
done
find /mnt/*/rackproof-bench /srv/nfs/rackproof-bench -mindepth 1 2>/dev/null | sed 's/^/file /'
if [ "$(hostname)" = storage-01 ]; then timeout 60 squeue -h -o '%j %T' | sed 's/^/job /'; fi
exit 0
