# shellcheck shell=sh
# Accounts "$@", their groups, keys and rights. Hashes of passwords do not leave the node.
: "${sudoers?}"
export LC_ALL=C
for u; do
  entry=$(getent passwd "$u") || continue
  echo "user $entry"
  echo "groups $(id -nG "$u")"
  echo "password $(getent shadow "$u" | cut -d: -f2 | tr -d '\n' | sha256sum | cut -d' ' -f1)"
  home=$(echo "$entry" | cut -d: -f6)
  f=$home/.ssh/authorized_keys
  # The home belongs to its user, who can put links there: it is read as that user. awk ends each line, sed leaves the
  # last one of a file as it is.
  ! runuser -u "$u" -- test -f "$f" || runuser -u "$u" -- cat "$f" | awk '{print "key " $0}'
  f=$sudoers/rackproof-$u
  [ ! -e "$f" ] || awk '{print "rule " $0}' "$f"
done
