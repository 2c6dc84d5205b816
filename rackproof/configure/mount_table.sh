# shellcheck shell=sh
# Mounts, marks of changed units, the kit's units of mounts with their mount points, and transports of NFS.
: "${pending?}" "${managed?}"
export LC_ALL=C
cat /proc/self/mounts && echo --
for f in "$pending"/*; do [ ! -e "$f" ] || printf '%s\n' "${f##*/}"; done
echo --
grep -ls "$managed" /etc/systemd/system/*.mount /etc/systemd/system/rackproof-*.service | while read -r f; do
  printf '%s ' "${f##*/}"
  sed -n -E 's/^(X-)?Where=//p' -- "$f" | head -n 1
done
echo --
grep -hsE '^device |xprt:' /proc/self/mountstats
