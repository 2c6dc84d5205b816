# shellcheck shell=sh
# Prints what NCCL's logs of one run say, equal lines counted once without addresses, and removes the logs.
: "${home?}"
echo 'rackproof nccl log 1'
cat /proc/sys/kernel/hostname /proc/sys/kernel/random/uuid
set -- "$home"/nccl.*.log
[ -e "$1" ] || set --
echo "files $#"
[ $# -eq 0 ] || cat -- "$@" | sed -n -E '
  s/^.*\[([0-9]+)\] ([^ ]+ ){0,2}NCCL (INFO|WARN) /[\1] \3 /
  /^\[[0-9]+\] (INFO|WARN) /!d
  s/0x[0-9a-f]+/0x/g
  s/Channel [0-9]+(\/[0-9]+)* : [0-9]+\[[0-9a-f]+\] -> [0-9]+\[[0-9a-f]+\]/Channel/
  s/Coll(Net)? [0-9]+(\/[0-9]+)* : [0-9]+ /CollNet /
  s/ busId [0-9a-f]+//
  s/ commId [^ ]+//
  s/<[0-9]+>//g
  s/opCount [0-9a-f]+ //
  s/ time [0-9.]+//
  s/ channel\{.*$//
  / WARN |Channel .*via |NET\/[^ ]* : (Using|Made virtual device) |Using network|NVLS|COLLNET|MNNVL|Init COMPLETE|set by environment|coll channels|NCCL version|Loading topology file|Bytes -> Algo|: Algo/p
' | sort | uniq -c
[ $# -eq 0 ] || rm -f -- "$@"
echo 'end of nccl log'
