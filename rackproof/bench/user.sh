# shellcheck shell=sh
# Makes the account that measures, and its empty home where only root can make a name; prints its uid and gid. Removes
# the shared memory of ranks that were killed.
: "${account?}" "${home?}"
set -eu
umask 077
getent passwd "$account" >/dev/null ||
  useradd --system --user-group --no-create-home --home-dir "$home" --shell /bin/sh -- "$account"
IFS=: read -r _ _ uid gid _ place _ <<END
$(getent passwd "$account")
END
if [ "$uid" -eq 0 ] || [ "$gid" -eq 0 ] || [ "$place" != "$home" ]; then
  echo "the account $account is not the kit's: expected an unprivileged one with the home $home, actual $uid:$gid $place" >&2
  exit 1
fi
find /dev/shm -xdev -mindepth 1 -maxdepth 1 -type f -user "$uid" -delete 2>/dev/null || :
rm -rf -- "$home"
mkdir -- "$home"
chown -h "$uid:$gid" "$home"
echo "uid $uid gid $gid"
