# shellcheck shell=sh
# Prints processes with an open GPU device, Slurm's daemons, its jobs on the node, and the node's state in Slurm.
: "${node?}" "${limit_s?}"
export LC_ALL=C
find /proc/[0-9]*/fd -maxdepth 1 -type l -lname '*/dev/nvidia*' 2>/dev/null | cut -d/ -f3 | sort -un |
  while read -r p; do read -r c <"/proc/$p/comm" && echo "$p $c"; done 2>/dev/null
echo --
for d in /proc/[0-9]*; do
  read -r c <"$d/comm" || continue
  case $c in
    slurmd) echo slurmd ;;
    slurmstepd) tr '\0' ' ' <"$d/cmdline"; echo ;;
  esac
done 2>/dev/null
echo --
if command -v squeue >/dev/null; then
  jobs=$(timeout "$limit_s" squeue --noheader --nodelist="$node" --format=%i 2>/dev/null) && echo answered &&
    printf '%s\n' "$jobs"
fi
echo --
timeout "$limit_s" scontrol --oneliner show node "$node" 2>/dev/null
