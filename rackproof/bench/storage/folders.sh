# shellcheck shell=sh
# Makes the folders "$@", owned by the account that measures, and removes files of earlier benchmarks from them. Others
# may read them: the account of another client does, in the test of a shared file.
# A mount may let every user write and may turn root into another user: root touches nothing there that others could
# have made, and follows no link.
: "${uid?}" "${gid?}" "${user?}" "${stem?}"
set -u
umask 022
cd /
measuring() { setpriv --reuid="$uid" --regid="$gid" --clear-groups -- "$@"; }
for folder; do
  above=${folder%/*}
  for _ in 1 2 3 4 5; do # another run may remove the folder above while it is empty
    fault=
    mkdir -- "$above" 2>/dev/null
    case $(stat -c '%u %A' -- "$above" 2>/dev/null) in
      '0 d'????-??-*)
        mkdir -m 755 -- "$folder" 2>/dev/null
        fault=$(chown -h -- "$uid:$gid" "$folder" 2>&1) && break
        ;;
      *) # root is not root on this mount
        [ ! -L "$above" ] || break # to another file system
        rmdir -- "$above" 2>/dev/null
        measuring mkdir -m 1777 -- "$above" 2>/dev/null
        measuring mkdir -m 755 -- "$folder" 2>/dev/null
        [ ! -d "$folder" ] || break
        ;;
    esac
  done
  [ -z "$fault" ] || { echo "$fault" >&2; exit 1; }
  actual=$(stat -c '%F of user %u' -- "$folder" 2>&1)
  [ ! -L "$above" ] || actual="below a link"
  if [ "$actual" != "directory of user $uid" ]; then
    echo "$folder: expected a directory of user $uid ($user), actual ${actual#stat: }; remove it" >&2
    exit 1
  fi
  measuring chmod 755 -- "$folder" || exit 1
  measuring find "$folder" -mindepth 1 -maxdepth 1 -name "$stem.*" -delete || exit 1
done
