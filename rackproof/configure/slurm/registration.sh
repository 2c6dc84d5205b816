# shellcheck shell=sh
# Waits until the node has registered with its controller, resumes it where Slurm itself put it down, and says its state.
: "${node?}" "${changed?}" "${wait_s?}"
set -u
show() { timeout -k 2 20 scontrol -o show node "$node" 2>&1; }
field() { printf '%s\n' "$line" | sed -n "s/^.* $1=\([^ ]*\).*$/\1/p"; }
# Slurm keeps the words of a drain that has ended, and adds its own to them.
reason() {
  printf '%s\n' "$line" | sed -n \
    -e '/State=[^ ]*DRAIN/!s/ Reason=rackproof[a-z-]*: reboot (.*) : / Reason=/' \
    -e 's/^.* Reason=\(.*\) \[.*$/\1/p'
}
# Reasons that slurmctld gives by itself; anything else was written by a person or a program.
given_by_slurm() {
  case $1 in
    '' | "Not responding"* | "Node unexpectedly rebooted"* | "Low RealMemory"* | "Low socket"* | "Low CPUs"* | \
      "Low TmpDisk"* | "gres/"* | "Duplicate jobid"*) ;;
    *) return 1 ;;
  esac
}
n=0 resumed=no state='' line=''
while [ $n -lt "$wait_s" ]; do
  line=$(show)
  state=$(field State)
  case $state in
    '' | UNKNOWN* | *'*'* | *NOT_RESPONDING*) ;;
    DOWN* | *DRAIN* | *INVAL*)
      if ! given_by_slurm "$(reason)"; then
        echo "$node stays $state: $(reason)"
        rm -f -- "$changed"
        exit 0
      elif [ $resumed = no ]; then
        timeout -k 2 20 scontrol update NodeName="$node" State=RESUME && resumed=yes
      elif [ $n -gt 30 ]; then
        break
      fi ;;
    *) rm -f -- "$changed"; exit 0 ;;
  esac
  n=$((n + 1))
  sleep 1
done
echo "$node: expected it idle in Slurm, actual ${state:-no answer of the controller} $(reason);" \
  "see journalctl -u slurmd here and -u slurmctld on the controller" >&2
exit 1
