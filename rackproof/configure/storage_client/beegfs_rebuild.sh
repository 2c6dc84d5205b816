# shellcheck shell=sh
# Builds the client's module with the package's program. The service stays stopped: it would mount the file systems of
# its own configuration.
: "${log?}"
for f in /opt/beegfs/sbin/beegfs-client /etc/init.d/beegfs-client; do
  if [ -x "$f" ]; then
    timeout 800 "$f" rebuild >"$log" 2>&1 || { tail -n 5 "$log" >&2; exit 1; }
    depmod
    exit 0
  fi
done
echo 'the client has no program that builds its module' >&2
exit 1
