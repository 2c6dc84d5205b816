# shellcheck shell=sh
# Puts a munge key in place as a whole: a new one, or the one that comes as base64 on standard input. Only munge may read
# it, also while it is written. "$@": marks of what has to follow.
: "${key?}" "${new_key?}" "${marks?}"
set -eu
umask 077
id munge >/dev/null 2>&1 || { echo 'no user munge: is munge installed?' >&2; exit 1; }
mkdir -p "$marks"
touch -- "$@"
folder=${key%/*}
mkdir -p "$folder"
if [ "$new_key" = yes ]; then dd if=/dev/urandom bs=1024 count=1 2>/dev/null; else base64 -d; fi >"$folder/.munge.key.rackproof-new"
[ "$(wc -c <"$folder/.munge.key.rackproof-new")" -ge 32 ] || { echo 'the munge key is too short' >&2; exit 1; }
chown munge:munge -- "$folder" "$folder/.munge.key.rackproof-new"
chmod 400 "$folder/.munge.key.rackproof-new"
chmod 700 "$folder"
mv -fT "$folder/.munge.key.rackproof-new" "$key"
