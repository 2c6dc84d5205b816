# shellcheck shell=sh
# Appends ssh keys to those of the user that runs it, whose home is $1; the file is replaced atomically.
: "${text?}"
set -eu
umask 077
mkdir -p -- "$1/.ssh"
chmod 700 -- "$1/.ssh"
f=$1/.ssh/authorized_keys
rm -f -- "$f.rackproof-new"
{ [ ! -f "$f" ] || sed -e "\$a\\" -- "$f"; printf %s "$text"; } >"$f.rackproof-new"
chmod 600 -- "$f.rackproof-new"
mv -f -- "$f.rackproof-new" "$f"
