# shellcheck shell=sh
# Removes the files that benchmarks of "$user" left in the folders "$@", and the folders, unless they hold other files;
# likewise the folder above them, unless another run or another client has a folder there, or the deploy declares it.
# Only folders of that user, as that user: root removes nothing that others could have put there, and no link is
# followed. Folders that are not there are no fault.
: "${user?}" "${stem?}" "${mountpoint?}" "${declared?}"
set -u
cd /
timeout -k 2 20 mountpoint -q -- "$mountpoint" || { echo "$mountpoint: not mounted, or no answer" >&2; exit 1; }
own() { timeout -k 2 60 setpriv --reuid="$uid" --regid="$gid" --clear-groups -- "$@"; }
for folder; do
  actual=$(timeout -k 2 20 stat -c '%F of user %u' -- "${folder%/*}" "$folder" 2>/dev/null)
  status=$?
  [ "$status" -lt 124 ] || { echo "$folder: no answer" >&2; exit 1; }
  [ "$status" -eq 0 ] || continue
  uid=$(id -u -- "$user") && gid=$(id -g -- "$user") || exit 1
  case $actual in
    "directory of user "*"
directory of user $uid") ;;
    *)
      echo "$folder: expected a directory of user $uid ($user), actual $(printf %s "$actual" | tail -n 1)" >&2
      exit 1
      ;;
  esac
  # gdsio has a folder of each GPU
  own find "$folder" -xdev -mindepth 1 -maxdepth 2 \( -type f \( -name "$stem.*" ! -path "$folder/*/*" -o -name 'gdsio.*' \) -o \
    -type d -name 'gpu[0-9]*' -empty \) -delete || exit 1
  timeout -k 2 20 rmdir -- "$folder" 2>/dev/null || own rmdir -- "$folder" 2>/dev/null
done
[ "$declared" = no ] || exit 0
uid=$(id -u -- "$user" 2>/dev/null) && gid=$(id -g -- "$user") || exit 0
for folder; do
  timeout -k 2 20 rmdir -- "${folder%/*}" 2>/dev/null || own rmdir -- "${folder%/*}" 2>/dev/null
done
exit 0
