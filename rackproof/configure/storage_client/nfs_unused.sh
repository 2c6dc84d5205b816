# shellcheck shell=sh
# Ends the script when NFS is mounted: its modules cannot be replaced then.
in_use=$(awk '$3 == "nfs" || $3 == "nfs4" || $3 == "nfsd" {printf " %s", $2}' /proc/self/mounts)
if [ -n "$in_use" ]; then
  echo "NFS is in use:$in_use; unmount it first (deploys/unmount.py, --data unmount=all), then run this again" >&2
  exit 1
fi
